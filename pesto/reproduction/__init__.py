"""Tables and figures of the two papers, made anew beside the printed numbers; work is done in cells that are kept."""
