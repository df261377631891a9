"""The names of files that jobs leave."""

PLAN, SPLIT, REPORT = "plan.json", "split.json", "report.html"
ANSWER = "answer.json"
"""The one object of the verb's --json."""
PAGE = "page.txt"
"""What the verb prints for people."""
