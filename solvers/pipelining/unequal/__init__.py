"""Chains on devices and links that are not equal: their part of files, contiguous stages in any order, and bounds."""
