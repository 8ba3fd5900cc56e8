"""The frozen contract: what a model reads, checked on the way in and shaped on the way out."""
