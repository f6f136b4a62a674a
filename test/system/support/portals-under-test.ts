import type { Lab } from './lab.ts';
import { Program, type ProgramOptions } from './program.ts';

/** A portal that leads all traffic of the node, and what is special about it. */
export interface PortalUnderTest {
  readonly name: string;
  readonly flags: readonly string[];
  /** Further flags for a second program on the same node. */
  readonly secondFlags: readonly string[];
  /** What a UDP client of a service without endpoints is told. */
  readonly refusesDatagrams: boolean;
}

/** Every test of the parity list is run with each of these. */
export const PORTALS: readonly PortalUnderTest[] = [
  {
    name: 'nftables',
    flags: ['--portal=nftables'],
    secondFlags: ['--portal-table=second'],
    refusesDatagrams: true,
  },
];

/** Starts the program with a portal, and further flags. */
export function startWith(
  t: { teardown(end: () => unknown): unknown },
  here: Lab,
  portal: PortalUnderTest,
  options: ProgramOptions = {},
): Program {
  return new Program(t, here, {
    ...options,
    flags: [...portal.flags, ...(options.flags ?? [])],
  });
}
