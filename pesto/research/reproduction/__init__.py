"""Tables and figures of the three papers, made anew beside the printed numbers; work is done in cells that are kept."""
