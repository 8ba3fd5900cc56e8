"""Each module takes one rule out when it is loaded as a pytest plugin, to show that the suite then goes red."""
