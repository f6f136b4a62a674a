/** Reads and writes so often, in one function, that V8 optimises it: run with `--trace-turbo-inlining`. */
import { openSync } from 'node:fs';
import { openSys } from '../../src/proxysocket/linux/sys/sys.ts';

const ROUNDS = 200_000;

const sys = await openSys();
const memory = sys.alloc(1);
const from = openSync('/dev/zero', 'r');
const to = openSync('/dev/null', 'w');
for (let round = 0; round < ROUNDS; round += 1) {
  sys.streams.read(from, memory, 1);
  sys.streams.write(to, memory, 1);
}
