"""Agents from options, from run directories and from weights; tuned settings and pretrained policies."""
