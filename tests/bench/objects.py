"""Objects of Python: lists of dictionaries, strings, tuples and instances, built, sorted, joined and dropped."""
import json


class Record:
    def __init__(self, number):
        self.number = number
        self.name = "record %d" % number
        self.tags = ["tag%d" % (number % k + 1) for k in (3, 5, 7)]


def main():
    total = 0
    kept = []
    for round_ in range(2):
        records = [Record(i * 7919 % 30011) for i in range(30000)]
        records.sort(key=lambda record: record.name)
        by_tag = {}
        for record in records:
            for tag in record.tags:
                by_tag.setdefault(tag, []).append((record.number, record.name))
        text = json.dumps([{"n": r.number, "name": r.name, "tags": r.tags} for r in records[:5000]])
        total += len(json.loads(text)) + sum(len(group) for group in by_tag.values())
        kept.append(records[:: 50])
    assert total == 2 * (5000 + 90000) and all(len(part) == 600 for part in kept)


main()
