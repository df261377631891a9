"""The report of a study: tables, profiles, curves and pictures, made from the study's file alone."""
