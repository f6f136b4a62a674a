/** The program is restarted on a node with packet rules, while clients on another machine ask it. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import type { Cli } from '../support/cli.ts';
import { shortDir } from '../support/short-dir.ts';
import { lab, type Lab } from './support/lab.ts';
import { ceaseless } from './support/proxy.ts';
import { RULE_KINDS, TRANSPARENT_SYSCTLS, type RuleKind } from './support/rule-kinds.ts';
import { onNode, PLACES, stateOf } from './support/web-proxy.ts';

/** How often it is restarted; more by hand. */
const RESTARTS = Number(process.env['RESTARTS'] ?? 1);
/** Starts the program on the node, with these flags each time and some more. */
function starter(t: Test, here: Lab, flags: string): (more?: string) => Cli {
  const folder = shortDir(t);
  writeFileSync(join(folder, 'state.yaml'), stateOf('pod-a'));
  const args = [
    ...`file --input ${folder}/state.yaml to-local to-userspace --node-name n1`.split(' '),
    ...'--metrics-bind-address= --healthz-bind-address= --drain-timeout=1h --udp-idle-timeout=1s'.split(
      ' ',
    ),
    ...flags.replace('FOLDER', folder).split(' '),
  ];
  return (more = '') => onNode(t, here, [...args, ...more.split(' ').filter(Boolean)]);
}

/** The proxy ports that the rules redirect to, for TCP and UDP. */
async function proxyPorts(here: Lab, kind: RuleKind): Promise<(string | undefined)[]> {
  const rules = await kind.rules(here.network);
  if (kind.name === 'transparent') {
    return [/listeners4 \{[^}]*tcp : (\d+)/.exec(rules)?.[1], '53'];
  }
  return (['tcp', 'udp'] as const).map((protocol) => {
    const port = protocol === 'tcp' ? 80 : 53;
    return kind.portalOf('10.96.0.10', protocol, port).exec(rules)?.[1];
  });
}

const [NFTABLES, TRANSPARENT, IPTABLES_NFT] = RULE_KINDS;
if (NFTABLES === undefined || TRANSPARENT === undefined || IPTABLES_NFT === undefined)
  throw new Error('a kind of rules is missing');

interface Case {
  readonly kind: RuleKind;
  readonly flags: string;
  /** Further flags of each process. */
  readonly chain: readonly string[];
  /** Settings of the node. */
  readonly sysctls?: readonly string[];
}

/** Takes the other portal on a node with these settings, but not while a process runs. */
const AUTO = ['', '--portal auto'];

/** Rules of each kind, and in some of them other workers or another engine after each restart. */
const CASES: readonly Case[] = [
  { kind: NFTABLES, flags: '--cleanup-on-exit --port-range 36000-37000', chain: [''] },
  {
    kind: NFTABLES,
    flags: '',
    chain: ['--engine linux --workers 2', '--engine node --workers 1', '--workers 2'],
  },
  { kind: TRANSPARENT, flags: '', chain: ['--workers 3', '--workers 1', '--workers 2'] },
  { kind: IPTABLES_NFT, flags: '', chain: ['--workers 2', '--workers 1'] },
  { kind: NFTABLES, flags: '', chain: AUTO, sysctls: TRANSPARENT_SYSCTLS },
  { kind: TRANSPARENT, flags: '', chain: AUTO },
];

for (const { kind, flags, chain, sysctls = [] } of CASES) {
  const what = [kind.name, flags, chain.join(', then ')].filter(Boolean).join('; ');
  t.test(`handed over, ${what}: no connection fails, UDP flows continue`, async (t) => {
    const here = await lab(t);
    for (const setting of sysctls) await here.network.inside('node', 'sysctl', ['-qw', setting]);
    const start = starter(t, here, `${kind.flags} --handover-socket FOLDER/socket ${flags}`.trim());
    let running = start(chain[0]);
    await running.line('The first complete state is in place');
    const ports = await proxyPorts(here, kind);
    t.match(ports, [/^\d+$/, /^\d+$/]);
    const stop = ceaseless(here.client, ...PLACES);
    await here.client.open('udp', '10.96.0.10:53/UDP');
    t.match(await here.client.say('udp'), /^pod-a/);
    const restarts = chain.length > 1 ? chain.length - 1 : RESTARTS;
    for (let round = 1; round <= restarts; round += 1) {
      await here.client.open('kept', PLACES[0] ?? '');
      t.match(await here.client.say('kept'), /^pod-a/);
      const successor = start(chain[round % chain.length]);
      if (chain === AUTO) {
        const reason = 'a running process uses it; auto chooses again when none does';
        await successor.line(`Chose --portal ${kind.name}`, { reason });
      }
      await successor.line('Took over from the previous process');
      await running.line('Waiting for connections to end');
      t.match(await here.client.say('kept'), /^pod-a/, 'over the process that was there');
      t.match(await here.client.say('udp'), /^pod-a/, 'the same UDP socket');
      await here.client.close('kept');
      t.match(await running.exited, { code: 0 });
      t.match(await here.client.say('udp'), /^pod-a/);
      const complaints = running.log.filter(({ msg }) =>
        /removed or changed|rules failed/.test(msg),
      );
      t.same(complaints, [], 'the rules were not lost');
      running = successor;
    }
    const counts = await stop();
    t.same(Object.keys(counts), ['pod-a'], JSON.stringify(counts));
    t.same(await proxyPorts(here, kind), ports, 'the rules are there, with the same proxy ports');
    t.comment(`${restarts} restarts, ${counts['pod-a'] ?? 0} connections`);
  });
}
