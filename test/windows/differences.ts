/**
 * What Wine 10 does in another way than Windows and Linux, as far as tests had to be written with it in
 * mind. A script shows each: it prints `same` or `differs: …`, with nothing of this project.
 */
import { join } from 'node:path';

export interface Difference {
  /** What Wine does. */
  readonly what: string;
  /** The script, in this repository. */
  readonly script: string;
  /** What that is for the tests. */
  readonly therefore: string;
}

const script = (name: string): string => join('test', 'windows', 'differences', name);

export const DIFFERENCES: readonly Difference[] = [
  {
    what: 'Wine says that it has made a symbolic link, and has not',
    script: script('links.mjs'),
    therefore: 'tests that need links are skipped: files behind links are watched on Linux only',
  },
  {
    what: 'Wine resets a connection only when all that was written before has been read',
    script: script('reset.mjs'),
    therefore: 'tests of resets have little on its way, or read it',
  },
  {
    what: 'Wine loses what is on its way when it ends a connection that the peer has ended before',
    script: script('shutdown.mjs'),
    therefore: 'a server in a test that has much to send closes its connection',
  },
  {
    what: 'Wine binds UDP sockets of an address to its whole interface',
    script: script('datagrams.mjs'),
    therefore: 'service addresses of a test have no UDP port in common',
  },
];
