"""What runs show: the noise between them, tests of two arms, the champion, certificates, ablations, guards."""
