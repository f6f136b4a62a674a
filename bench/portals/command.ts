/** `npm run bench -- portals`: how long rules take, for how many services, and one change of them. */
import { existsSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { parse } from '../../src/cli/parse.ts';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { describeMachine, machine } from '../report/machine.ts';
import { publishResults } from '../report/page.ts';
import { asText } from '../report/table.ts';
import { checkMachine } from '../data/command.ts';
import { commonFlags, count, today, writeJson } from '../support/command.ts';
import { portalResults } from './docs.ts';
import { kubeProxy } from './kube-proxy.ts';
import { measure } from './measure.ts';
import { own } from './own.ts';
import type { PortalReport, PortalResult } from './result.ts';
import { changeRows, coldRows } from './table.ts';

export const PORTALS_USAGE = `npm run bench -- portals [flags]   measures how fast portals write rules; needs root, ip and nft

  --portal LIST          nftables, transparent, iptables, address, interface (address with an interface of its own);
                         by default all that there are
  --sizes LIST           service ports (100,1000,5000,10000,30000,100000); more than 60,000 for transparent only
  --rounds N             starts of each, of which the median counts (3)
  --changes N            services that are added, changed and removed, unless it takes long (40)
  --idle N               seconds that a proxy is watched at rest (5; the peer 60 or more)
  --peer kube-proxy=PATH a kube-proxy that has the userspace mode, to be measured beside
  --peer-sizes LIST      service ports of the peer (100,1000)
  --peer-changes N       changes of the peer (3)
  --json FILE            where the figures go (bench/results/portals.json)
  --write-docs           writes docs/benchmarks/portals.json and the tables of docs/benchmarks.md`;

const PORTALS = {
  nftables: { flags: ['--portal=nftables'], local: false },
  transparent: { flags: ['--portal=transparent'], local: false },
  iptables: { flags: ['--portal=iptables'], local: false },
  address: { flags: ['--portal=address'], local: true },
  interface: { flags: ['--portal=address', '--portal-interface=kpngbench0'], local: false },
} as const;
type PortalWord = keyof typeof PORTALS;

/** What the table calls them. */
const TITLES: Readonly<Record<PortalWord, string>> = {
  nftables: 'nftables',
  transparent: 'transparent',
  iptables: 'iptables',
  address: 'address',
  interface: 'address, own interface',
};
const SIZES = '100,1000,5000,10000,30000,100000';
/** The others have a listener for each service port: there are not more ports and descriptors. */
const MOST_LISTENERS = 60_000;

interface Plan {
  readonly portals: readonly PortalWord[];
  readonly sizes: readonly number[];
  readonly rounds: number;
  readonly changes: number;
  readonly idleSeconds: number;
  readonly peer: string | undefined;
  readonly peerSizes: readonly number[];
  readonly peerChanges: number;
  readonly json: string;
  readonly writeDocs: boolean;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readPortalArgs(args: readonly string[]): Plan {
  const { values } = parseArgs({
    args: [...args],
    options: {
      portal: { type: 'string', default: knownPortals().join(',') },
      sizes: { type: 'string', default: SIZES },
      rounds: { type: 'string', default: '3' },
      changes: { type: 'string', default: '40' },
      idle: { type: 'string', default: '5' },
      peer: { type: 'string', default: '' },
      'peer-sizes': { type: 'string', default: '100,1000' },
      'peer-changes': { type: 'string', default: '3' },
      ...commonFlags('portals'),
    },
  });
  const known = knownPortals();
  const portals = values.portal.split(',').map((word) => {
    const found = known.find((each) => each === word);
    if (found !== undefined) return found;
    throw new TypeError(`--portal ${word}: expected some of ${known.join(', ')}`);
  });
  const [, peer] = /^kube-proxy=(.+)$/.exec(values.peer) ?? [];
  if (values.peer !== '' && (peer === undefined || !existsSync(peer))) {
    throw new TypeError(`--peer ${values.peer}: expected kube-proxy=PATH of a program`);
  }
  return {
    portals,
    sizes: values.sizes.split(',').map((text) => servicePorts('sizes', text)),
    rounds: count('rounds', values.rounds),
    changes: count('changes', values.changes),
    idleSeconds: count('idle', values.idle),
    peer,
    peerSizes: values['peer-sizes'].split(',').map((text) => servicePorts('peer-sizes', text)),
    peerChanges: count('peer-changes', values['peer-changes']),
    json: values.json,
    writeDocs: values['write-docs'],
  };
}

const servicePorts = (flag: string, text: string): number => count(flag, text, 1, 500_000);

/** Those that this version has. */
function knownPortals(): PortalWord[] {
  return (Object.keys(PORTALS) as PortalWord[]).filter((word) => {
    const command = ['file', '--input=none', 'to-local', 'to-userspace', ...PORTALS[word].flags];
    return parse(command).kind === 'run';
  });
}

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runPortals(
  plan: Plan,
  print: (text: string) => void,
  progress: (text: string) => void,
): Promise<void> {
  checkMachine();
  const cache = tempFolder('bench-modules');
  // Each measurement loads the same modules.
  process.env['NODE_COMPILE_CACHE'] = cache.path;
  const results: PortalResult[] = [];
  for (const servicePorts of plan.sizes) {
    for (const word of plan.portals) {
      if (servicePorts > MOST_LISTENERS && word !== 'transparent') continue;
      const { flags, local } = PORTALS[word];
      const name = TITLES[word];
      progress(`${servicePorts} service ports, ${name}`);
      results.push(
        await measure({
          servicePorts,
          local,
          rounds: plan.rounds,
          changes: plan.changes,
          idleSeconds: plan.idleSeconds,
          open: (network) => own(network, { name, flags }),
        }),
      );
    }
    if (plan.peer !== undefined && plan.peerSizes.includes(servicePorts)) {
      progress(`${servicePorts} service ports, kube-proxy; with 1,000 it takes minutes`);
      results.push(await measurePeer(plan, plan.peer, servicePorts));
    }
  }
  progress('');
  const report: PortalReport = {
    date: today(),
    machine: machine(),
    descriptors: processDescriptorLimit(),
    results,
  };
  print(`${describeMachine(report.machine)}\n`);
  print(asText(coldRows(report)));
  print(`\nmedian / 95th percentile\n\n${asText(changeRows(report), 3)}`);
  writeJson(plan.json, report);
  if (plan.writeDocs) publishResults('portals', portalResults(report));
}

function measurePeer(plan: Plan, path: string, servicePorts: number): Promise<PortalResult> {
  return measure({
    servicePorts,
    local: false,
    rounds: 1,
    changes: plan.peerChanges,
    // It checks all of its rules every half minute.
    idleSeconds: Math.max(60, plan.idleSeconds),
    open: (network) => kubeProxy(network, path),
  });
}
