"""Signatures: the same bytes as on the other side, and nothing else."""

import unittest

from legwork_executor.signature import Refused, sign, verify

SECRET = "0123456789abcdef0123456789abcdef"
TARGET = "/legwork/verdicts?a=b"
BODY = b'{"task":"t1","verdict":"ack"}'
NOW = 1_763_260_000_000
# The Rust side is tested with the same: both sides mean the same bytes.
VECTOR = "t=1763260000000,v1=d3e1aee1df5f4afaa4bbe5bc9c2149d47ab0b216c96ffd0f3af0aefcbb0f0c5a"


class Signatures(unittest.TestCase):
    def refused(self, reason, header=VECTOR, **changed):
        asked = {"secret": SECRET, "method": "POST", "target": TARGET, "body": BODY, "now_ms": NOW}
        with self.assertRaisesRegex(Refused, reason):
            verify(header=header, **{**asked, **changed})

    def test_the_known_signature_comes_out(self):
        self.assertEqual(sign(SECRET, "POST", TARGET, BODY, NOW), VECTOR)
        verify(SECRET, "POST", TARGET, BODY, VECTOR, NOW)

    def test_what_was_changed_is_refused(self):
        self.refused("does not fit", secret=SECRET.upper())
        self.refused("does not fit", method="PUT")
        self.refused("does not fit", target="/legwork/verdicts")
        self.refused("does not fit", body=BODY.replace(b"ack", b"nack"))
        self.refused("does not fit", header=VECTOR.replace("0000,", "0001,"))

    def test_five_minutes_of_difference_are_allowed_and_no_more(self):
        for offset in (300_000, -300_000):
            verify(SECRET, "POST", TARGET, BODY, VECTOR, NOW + offset)
        for offset in (300_001, -300_001):
            self.refused("clocks", now_ms=NOW + offset)

    def test_what_cannot_be_read_is_refused(self):
        self.refused("not signed", header=None)
        upper = VECTOR.upper().replace("T=", "t=").replace("V1=", "v1=")
        wild = VECTOR.replace("t=1763260000000", "t=99999999999999999999")
        wrong = ["", "t=1", "v1=00", "t=,v1=", "t=-1,v1=é", upper, wild]
        for header in wrong + [VECTOR[:-1], VECTOR + ",t=1"]:
            with self.subTest(header):
                self.refused("cannot be read", header=header)
        verify(SECRET, "POST", TARGET, BODY, VECTOR + ",v2=other", NOW)
