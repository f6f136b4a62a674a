/** `npm run bench -- portals`: how long rules take, for how many services, and one change of them. */
import { tempFolder } from '../../examples/support/temp-folder.ts';
import { parse } from '../../src/cli/parse.ts';
import { processDescriptorLimit } from '../../src/proxysocket/core/descriptors.ts';
import { checkMachine } from '../data/open.ts';
import { readKubeProxy } from '../data/plan.ts';
import { report } from '../report/page.ts';
import { threeDigits, withSpread } from '../report/stats.ts';
import type { Rows } from '../report/table.ts';
import { count, readFlags, type Output, type Print } from '../support/command.ts';
import { kubeProxy } from './kube-proxy.ts';
import { measure } from './measure.ts';
import type { BenchNetwork } from './network.ts';
import { own } from './own.ts';
import type { PortalResult, Times } from './result.ts';
import { CHANGE_KINDS, type ChangeKind } from './subject.ts';

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

/** What the table calls them, their flags, and whether the service addresses are the host's own. */
const PORTALS = {
  nftables: { name: 'nftables', flags: ['--portal=nftables'], local: false },
  transparent: { name: 'transparent', flags: ['--portal=transparent'], local: false },
  iptables: { name: 'iptables', flags: ['--portal=iptables'], local: false },
  address: { name: 'address', flags: ['--portal=address'], local: true },
  interface: {
    name: 'address, own interface',
    flags: ['--portal=address', '--portal-interface=kpngbench0'],
    local: false,
  },
} as const;
type PortalWord = keyof typeof PORTALS;

const SIZES = '100,1000,5000,10000,30000,100000';
/** The others have a listener for each service port: there are not more ports and descriptors. */
const MOST_LISTENERS = 60_000;

interface Plan extends Output {
  readonly portals: readonly PortalWord[];
  readonly sizes: readonly number[];
  readonly rounds: number;
  readonly changes: number;
  readonly idleSeconds: number;
  readonly peer: string | undefined;
  readonly peerSizes: readonly number[];
  readonly peerChanges: number;
}

/** What the command line asks for; throws a TypeError that says what is wrong with it. */
export function readPortalArgs(args: readonly string[]): Plan {
  const { values, output } = readFlags('portals', args, {
    portal: knownPortals().join(','),
    sizes: SIZES,
    rounds: '3',
    changes: '40',
    idle: '5',
    peer: '',
    'peer-sizes': '100,1000',
    'peer-changes': '3',
  });
  const known = knownPortals();
  const portals = values.portal.split(',').map((word) => {
    const found = known.find((each) => each === word);
    if (found !== undefined) return found;
    throw new TypeError(`--portal ${word}: expected some of ${known.join(', ')}`);
  });
  return {
    portals,
    sizes: values.sizes.split(',').map((text) => servicePorts('sizes', text)),
    rounds: count('rounds', values.rounds),
    changes: count('changes', values.changes),
    idleSeconds: count('idle', values.idle),
    peer: readKubeProxy(values.peer),
    peerSizes: values['peer-sizes'].split(',').map((text) => servicePorts('peer-sizes', text)),
    peerChanges: count('peer-changes', values['peer-changes']),
    ...output,
  };
}

const servicePorts = (flag: string, text: string): number => count(flag, text, 1, 500_000);

/** Those that this version has. */
function knownPortals(): PortalWord[] {
  return (Object.keys(PORTALS) as PortalWord[]).filter((word) => {
    const command = ['file', '--input=none', 'to-local', 'to-userspace', ...PORTALS[word].flags];
    try {
      return parse(command).kind === 'run';
    } catch {
      return false;
    }
  });
}

/** Measures, prints, and writes the files. Rejects when namespaces cannot be made here. */
export async function runPortals(plan: Plan, print: Print, progress: Print): Promise<void> {
  checkMachine();
  // Each measurement loads the same modules.
  process.env['NODE_COMPILE_CACHE'] = tempFolder('bench-modules').path;
  const results: PortalResult[] = [];
  for (const servicePorts of plan.sizes) {
    for (const word of plan.portals) {
      if (servicePorts > MOST_LISTENERS && word !== 'transparent') continue;
      const { name, flags, local } = PORTALS[word];
      progress(`${servicePorts} service ports, ${name}`);
      const open = { local, open: (network: BenchNetwork) => own(network, { name, flags }) };
      results.push(await measure({ ...plan, servicePorts, ...open }));
    }
    const { peer } = plan;
    if (peer !== undefined && plan.peerSizes.includes(servicePorts)) {
      progress(`${servicePorts} service ports, kube-proxy; with 1,000 it takes minutes`);
      const measured = await measure({
        servicePorts,
        local: false,
        rounds: 1,
        changes: plan.peerChanges,
        // It checks all of its rules every half minute.
        idleSeconds: Math.max(60, plan.idleSeconds),
        open: (network) => kubeProxy(network, peer),
      });
      results.push(measured);
    }
  }
  const about = { descriptors: processDescriptorLimit() };
  const tables = {
    'From the first state to the last rule': coldRows(results),
    'One change': changeRows(results),
  };
  report('portals', plan, { about, tables }, { results }, print);
}

const CHANGE_WORDS: Readonly<Record<ChangeKind, string>> = {
  added: 'service added',
  endpoint: 'endpoint added',
  removed: 'service removed',
};

/** From nothing to the first state, and what the proxy is like then. */
function coldRows(results: readonly PortalResult[]): Rows {
  return [
    [
      'service ports',
      'portal',
      'served',
      'until the last rule, s',
      'CPU, s',
      'processes',
      'idle CPU, %',
      'resident MB',
      'its own MB',
      'resident after changes',
    ],
    ...results.map((result) => [
      result.servicePorts.toLocaleString('en'),
      result.subject,
      result.served.toLocaleString('en'),
      withSpread(result.cold, 1e-3),
      threeDigits(result.coldCpu),
      result.coldProcesses.toLocaleString('en'),
      threeDigits(result.idleCpu),
      (result.resident / 1e6).toFixed(0),
      (result.anonymous / 1e6).toFixed(0),
      (result.residentLater / 1e6).toFixed(0),
    ]),
  ];
}

/** One change when all of that is there: median / 95th percentile. */
function changeRows(results: readonly PortalResult[]): Rows {
  const rows = results.flatMap(({ servicePorts, subject, changes }) =>
    CHANGE_KINDS.map((kind, index) => {
      const { done, seen, processes } = changes[kind];
      return [
        index === 0 ? servicePorts.toLocaleString('en') : '',
        index === 0 ? subject : '',
        CHANGE_WORDS[kind],
        timesText(seen),
        timesText(done),
        processes.toLocaleString('en'),
      ];
    }),
  );
  return [['service ports', 'portal', 'change', 'seen, ms', 'done, ms', 'processes'], ...rows];
}

function timesText(times: Times | undefined): string {
  return times === undefined ? '-' : `${threeDigits(times.median)} / ${threeDigits(times.p95)}`;
}
