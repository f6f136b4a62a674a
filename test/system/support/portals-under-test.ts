import { execFileSync } from 'node:child_process';
import type { Lab } from './lab.ts';
import { Program, type ProgramOptions } from './program.ts';
import { TRANSPARENT_SYSCTLS } from './rule-kinds.ts';

/** A portal that redirects all traffic of the node, and what is special about it. */
export interface PortalUnderTest {
  readonly name: string;
  readonly flags: readonly string[];
  /** The same for a second program on the same node. */
  readonly otherFlags: readonly string[];
  /** What a TCP client of a service without endpoints gets. */
  readonly refusals: readonly string[];
  /** Whether a UDP client of such a service gets any response. */
  readonly refusesDatagrams: boolean;
  /** Settings of the node that it needs. */
  readonly sysctls?: readonly string[];
}

/** What depends on the portal is tested with each of these, the rest with the first. */
export const PORTALS: readonly [PortalUnderTest, ...PortalUnderTest[]] = [
  {
    name: 'nftables',
    flags: ['--portal=nftables'],
    otherFlags: ['--portal=nftables', '--portal-table=other'],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
  },
  {
    name: 'transparent',
    flags: ['--portal=transparent'],
    otherFlags: [
      '--portal=transparent',
      '--portal-table=other',
      '--portal-mark=0x80',
      '--portal-route-table=10041',
      '--portal-rule-priority=41',
    ],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
    sysctls: TRANSPARENT_SYSCTLS,
  },
  {
    name: 'iptables',
    flags: ['--portal=iptables'],
    otherFlags: ['--portal=iptables', '--portal-chain-prefix=OTHER'],
    refusals: ['ECONNREFUSED'],
    refusesDatagrams: true,
  },
  {
    name: 'address',
    flags: ['--portal=address', '--portal-interface=kpng0'],
    otherFlags: ['--portal=address', '--portal-interface=kpng1'],
    // Someone listens, who resets the connection as soon as it is there.
    refusals: ['ECONNRESET', 'closed'],
    refusesDatagrams: false,
  },
];

/** Starts the program with a portal, and further flags. */
export function startWith(
  t: { teardown(end: () => unknown): unknown },
  here: Lab,
  portal: PortalUnderTest,
  options: ProgramOptions = {},
): Program {
  const { sysctls = [] } = portal;
  if (sysctls.length > 0) {
    const namespace = here.network.namespace('node');
    execFileSync('ip', ['netns', 'exec', namespace, 'sysctl', '-q', '-w', ...sysctls]);
  }
  return new Program(t, here, { ...options, flags: [...portal.flags, ...(options.flags ?? [])] });
}

/** The name of the server that answered, or `refused` for what the portal does without endpoints. */
export function whoIs({ refusals }: PortalUnderTest, answer: string): string {
  return refusals.includes(answer) ? 'refused' : (answer.split(' ')[0] ?? '');
}
