"""Totals of a profile in any of the formats that jeprobe writes, read without any code of jeprobe.

usage: totals.py FORMAT FILE      prints KEY = VALUE lines, values in whole bytes or objects
"""

import csv
import gzip
import json
import re
import sys


def from_text(path):
    first = open(path, encoding="utf-8").readline()
    match = re.fullmatch(r"Total: (-?\d+) (B|objects)\n", first)
    return {"shown": int(match.group(1))} if match else {"shown": 0}


def from_tree(path):
    """The total, checked against the sum of all nodes' own numbers."""
    lines = open(path, encoding="utf-8").read().splitlines()
    total = int(re.fullmatch(r"Total: (-?\d+) (?:B|objects)", lines[0]).group(1))
    own = 0
    for line in lines[1:]:
        numbers = line[:25].split()
        own += int(numbers[2]) if len(numbers) == 3 else int(numbers[0])
    # Each line is cut to whole numbers.
    assert 0 <= total - own <= len(lines), (total, own)
    return {"shown": total}


def from_json(path):
    data = json.load(open(path, encoding="utf-8"))
    assert (data["schema"], data["version"]) == ("jeprobe-report", 1)
    names = ["inuse_space", "inuse_objects", "alloc_space", "alloc_objects"]
    sums = dict.fromkeys(names, 0.0)
    for stack in data["stacks"]:
        assert all(0 <= frame < len(data["frames"]) for frame in stack["frames"])
        for name, number in zip(names, stack["numbers"]):
            sums[name] += number
    for name in names:
        assert abs(sums[name] - data["totals"][name]) < 1e-3, (name, sums, data["totals"])
    # Cut, as every format does; what floating sums leave below a whole number is none.
    return {name: int(sums[name] + 1e-4) for name in names}


def from_csv(path):
    rows = list(csv.reader(open(path, newline="", encoding="utf-8")))
    assert rows[0][1].startswith("flat_"), rows[0]
    return {"shown": sum(int(row[1]) for row in rows[1:])}


def from_folded(path):
    return {"shown": sum(int(line.rsplit(" ", 1)[1]) for line in open(path, encoding="utf-8"))}


def from_speedscope(path):
    data = json.load(open(path, encoding="utf-8"))
    sums = {}
    for profile in data["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= frame < len(data["shared"]["frames"]) for sample in profile["samples"] for frame in sample)
        sums[profile["name"]] = sum(profile["weights"])
        assert sums[profile["name"]] == profile["endValue"]
    return sums


def from_callgrind(path):
    events, sums, is_call = [], [], False
    for line in open(path, encoding="utf-8"):
        if line.startswith("events:"):
            events = line.split()[1:]
            sums = [0] * len(events)
        elif line.startswith("calls="):
            is_call = True
        elif line[0].isdigit():
            if not is_call:
                sums = [a + int(b) for a, b in zip(sums, line.split()[1:])]
            is_call = False
        elif line.startswith("summary:"):
            assert sums == [int(word) for word in line.split()[1:]], (sums, line)
    return dict(zip(events, sums))


def fields(data):
    """Field number, value of each field of a protobuf message: an int, or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        elif key & 7 == 1:
            yield key >> 3, int.from_bytes(data[at : at + 8], "little")
            at += 8
        elif key & 7 == 2:
            size = varint()
            yield key >> 3, data[at : at + size]
            at += size
        else:
            raise ValueError(f"wire type {key & 7}")


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def packed(value):
    """The numbers of a repeated field, packed or single."""
    if isinstance(value, int):
        return [signed(value)]
    numbers, number, shift = [], 0, 0
    for byte in value:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(signed(number))
            number = shift = 0
    return numbers


def from_pprof(path):
    data = gzip.open(path).read()
    strings, types, samples, locations, functions = [], [], [], set(), set()
    used = set()
    for field, value in fields(data):
        if field == 6:
            strings.append(value.decode())
        elif field == 1:
            types.append(dict(fields(value)))
        elif field == 2:
            numbers = []
            for number, part in fields(value):
                if number == 2:
                    numbers += packed(part)
                elif number == 1:
                    used.update(packed(part))
            samples.append(numbers)
        elif field == 4:
            locations.add(dict(fields(value))[1])
        elif field == 5:
            functions.add(dict(fields(value))[1])
    assert strings[0] == "" and used <= locations
    names = [strings[kind[1]] for kind in types]
    return {name: sum(numbers[place] for numbers in samples) for place, name in enumerate(names)}


def from_otlp(path):
    """One profile for each value; tables begin with an empty entry."""
    data = open(path, "rb").read()
    tables = {1: [], 2: [], 3: [], 5: [], 6: [], 7: []}
    profiles = []
    for field, value in fields(data):
        if field == 2:
            for table, entry in fields(value):
                tables.setdefault(table, []).append(entry)
        else:
            for part, scopes in fields(value):
                if part == 2:
                    profiles += [profile for number, profile in fields(scopes) if number == 2]
    strings = [entry.decode() for entry in tables[5]]
    assert strings[0] == "" and all(tables[table][0] == b"" for table in (1, 2, 3, 6, 7))
    for stack in tables[7]:
        used = [index for _, value in fields(stack) for index in packed(value)]
        assert all(0 < index < len(tables[2]) for index in used)
    for location in tables[2]:
        lines = [dict(fields(line)) for number, line in fields(location) if number == 3]
        assert all(0 < line[1] < len(tables[3]) for line in lines)
    sums = {}
    for profile in profiles:
        name, total = None, 0
        for field, value in fields(profile):
            if field == 1:
                name = strings[dict(fields(value))[1]]
            elif field == 2:
                for number, part in fields(value):
                    if number == 4:
                        total += sum(packed(part))
                    elif number == 1:
                        assert 0 <= part < len(tables[7])
                    elif number == 2:
                        assert all(0 < index < len(tables[6]) for index in packed(part))
        sums[name] = total
    return sums


def from_heap(path):
    """Sums of jeprof's estimates of the stack lines."""
    import math

    sums, rate = {"inuse_space": 0.0, "inuse_objects": 0.0}, 0
    in_stack = False
    for line in open(path, encoding="utf-8", errors="replace"):
        if line.startswith("heap_v2/"):
            rate = int(line.split("/")[1])
        elif line.startswith("@"):
            in_stack = True
        elif in_stack and (match := re.match(r"\s+t\*: (\d+): (\d+) \[", line)):
            count, size = int(match.group(1)), int(match.group(2))
            if count:
                factor = 1 / (1 - math.exp(-(size / count) / rate)) if rate > 0 else 1
                sums["inuse_space"] += size * factor
                sums["inuse_objects"] += count * factor
        elif line.startswith("MAPPED_LIBRARIES"):
            break
    return {name: round(value) for name, value in sums.items()}


for key, value in globals()["from_" + sys.argv[1]](sys.argv[2]).items():
    print(f"{key} = {value}")
