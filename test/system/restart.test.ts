/** The program is restarted on a node with packet rules, while clients on another machine ask it. */
import { join } from 'node:path';
import t from 'tap';
import { shortDir } from '../support/short-dir.ts';
import { kindLab, type KindLab, type KindName } from './support/kinds.ts';
import type { Program } from './support/program.ts';
import { ceaseless, CLUSTER, OUTSIDE, pod, service } from './support/services.ts';

/** How often it is restarted; more by hand. */
const RESTARTS = Number(process.env['RESTARTS'] ?? 1);
const WEB = `${CLUSTER.v4}:80`;

/** The proxy ports that the rules redirect to, for TCP and UDP. */
async function proxyPorts(here: KindLab): Promise<(string | undefined)[]> {
  const rules = await here.rules();
  if (here.kind.name === 'transparent') {
    return [/listeners4 \{[^}]*tcp : (\d+)/.exec(rules)?.[1], '53'];
  }
  return (['tcp', 'udp'] as const).map((protocol) => {
    const port = protocol === 'tcp' ? 80 : 53;
    return here.kind.portalOf('10.96.0.10', protocol, port).exec(rules)?.[1];
  });
}

interface Case {
  readonly name: KindName;
  readonly flags: string;
  /** Further flags of each process. */
  readonly chain: readonly string[];
  /** A setting of the node, which keeps `auto` from this portal. */
  readonly sysctl?: string;
}

/** Takes the other portal on a node with these settings, but not while a process runs. */
const AUTO = ['', '--portal auto'];

/** Rules of each kind, and in some of them other workers or another engine after each restart. */
const CASES: readonly Case[] = [
  { name: 'nftables', flags: '--cleanup-on-exit --port-range 36000-37000', chain: [''] },
  {
    name: 'nftables',
    flags: '',
    chain: ['--engine linux --workers 2', '--engine node --workers 1', '--workers 2'],
  },
  { name: 'transparent', flags: '', chain: ['--workers 3', '--workers 1', '--workers 2'] },
  { name: 'iptables-nft', flags: '', chain: ['--workers 2', '--workers 1'] },
  { name: 'nftables', flags: '', chain: AUTO },
  { name: 'transparent', flags: '', chain: AUTO, sysctl: 'net.ipv4.conf.eth1.src_valid_mark=1' },
];

for (const { name, flags, chain, sysctl } of CASES) {
  const what = [name, flags, chain.join(', then ')].filter(Boolean).join('; ');
  t.test(`handed over, ${what}: no connection fails, UDP flows continue`, async (t) => {
    const here = await kindLab(t, name);
    if (sysctl !== undefined) await here.sh(`sysctl -qw ${sysctl}`);
    const socket = join(shortDir(t), 'socket');
    const common = `--handover-socket=${socket} --drain-timeout=1h --udp-idle-timeout=1s ${flags}`;
    const start = (more = ''): Program =>
      here.start({ flags: `${common} ${more}`, state: [service([pod('pod-a')])] });
    let running = await start(chain[0]).ready();
    const ports = await proxyPorts(here);
    t.match(ports, [/^\d+$/, /^\d+$/]);
    const stop = ceaseless(here.client, WEB, ...OUTSIDE);
    await here.client.open('udp', '10.96.0.10:53/UDP');
    t.match(await here.client.say('udp'), /^pod-a/);
    const restarts = chain.length > 1 ? chain.length - 1 : RESTARTS;
    for (let round = 1; round <= restarts; round += 1) {
      await here.client.open('kept', WEB);
      t.match(await here.client.say('kept'), /^pod-a/);
      const successor = start(chain[round % chain.length]);
      if (chain === AUTO) {
        const reason = 'a running process uses it; auto chooses again when none does';
        await successor.line(`Chose --portal ${name}`, { reason });
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
    t.same(await proxyPorts(here), ports, 'the rules are there, with the same proxy ports');
    t.comment(`${restarts} restarts, ${counts['pod-a'] ?? 0} connections`);
  });
}
