/** Runs on the node of a test network: engine, proxier and portal, which get what to serve line by line. */
import type { DeepPartial, Endpoint, Service } from '../../../src/api/generated/localv1/api.ts';
import {
  flowsCleared,
  flowsNotCleared,
  portalFailed,
  portalLost,
  portalWritten,
} from '../../../src/portal/events.ts';
import { AddressPortal } from '../../../src/portal/address.ts';
import { systemExec } from '../../../src/portal/exec.ts';
import { AddressKeeper } from '../../../src/portal/interface/keeper.ts';
import { LinuxInterface } from '../../../src/portal/interface/linux.ts';
import { IptablesPortal } from '../../../src/portal/iptables/portal.ts';
import { findTools } from '../../../src/portal/iptables/tools.ts';
import { NftablesPortal } from '../../../src/portal/nftables/portal.ts';
import { DEFAULT_ROUTE } from '../../../src/portal/nftables/policy-route.ts';
import { PortAllocator } from '../../../src/portal/proxy-ports.ts';
import type { Portal } from '../../../src/portal/portal.ts';
import { Proxier } from '../../../src/proxier/proxier.ts';
import { createNodeEngine } from '../../../src/proxysocket/node/engine.ts';
import { transparentSocket } from '../../../src/proxysocket/linux/open-listener.ts';
import { Pool } from '../../../src/proxysocket/pool/pool.ts';
import { systemClock } from '../../../src/util/clock.ts';
import { endpoint, entry, TestView } from '../../support/messages.ts';
import { tell } from '../../../bench/support/dialogue.ts';
import { serveLines } from './machine.ts';

/** How the proxy redirects traffic to itself. */
export interface ProxyOptions {
  readonly nodePortAddresses?: readonly string[];
  /** Default: `nftables`. */
  readonly portal?: 'nftables' | 'transparent' | 'iptables-nft' | 'iptables-legacy' | 'address';
  /** What the chains of iptables begin with. */
  readonly prefix?: string;
  /** Interface of the portal `address`. */
  readonly portalInterface?: string;
  /** How often the contents of the rules are compared. Milliseconds. */
  readonly auditMs?: number;
  /** Of the portal `transparent`. Default: false. */
  readonly notrack?: boolean;
  /** Of the engine of the portal `transparent`. Default: 1. */
  readonly workers?: number;
}

/** One service: its fields, and its endpoints as addresses or with more fields. */
export interface WantedService {
  readonly service: DeepPartial<Service>;
  readonly endpoints: readonly (string | { address: string; more: DeepPartial<Endpoint> })[];
}

const options = JSON.parse(process.argv[2] ?? '{}') as ProxyOptions;
const portal = createPortal(options);
const engine =
  portal.kind === 'transparent'
    ? await Pool.start({ workers: options.workers ?? 1 })
    : createNodeEngine({
        ...(portal.hostAddresses !== undefined && {
          hostAddresses: () => portal.hostAddresses?.() ?? [],
        }),
      });
const proxier = new Proxier({ engine, portal });
const view = new TestView();

for (const channel of [portalWritten, portalLost, flowsCleared]) {
  channel.subscribe((event) => tell({ channel: channel.name, ...event }));
}
for (const channel of [portalFailed, flowsNotCleared]) {
  channel.subscribe(({ error }) => {
    tell({ channel: channel.name, code: error.code, message: error.message });
  });
}

const handlers = {
  /** Resolves when the change is in place. */
  async sync(set: Record<string, WantedService>, remove: readonly string[] = []) {
    const entries = Object.entries(set).map(([key, { service, endpoints }]) =>
      entry(key, service, Object.fromEntries(endpoints.map(readEndpoint))),
    );
    view.set(...entries);
    view.remove(...remove);
    await proxier.sync({ view, changed: new Set([...Object.keys(set), ...remove]) });
    return { problems: proxier.snapshot().problems.map(({ message }) => message) };
  },
  /** CPU time so far, in microseconds. */
  usage: () => process.cpuUsage(),
  /** Ends a worker of the engine as a crash would. */
  loseWorker: async (index: number) => engine instanceof Pool && engine.loseWorker(index),
};

export type ProxyHandlers = typeof handlers;

serveLines(handlers);

function readEndpoint(given: WantedService['endpoints'][number]): [string, Endpoint] {
  const { address, more } = typeof given === 'string' ? { address: given, more: {} } : given;
  const ips = address.includes(':') ? { v6: [address] } : { v4: [address] };
  return [address, endpoint(address, { ips, ...more })];
}

function createPortal({
  portal = 'nftables',
  portalInterface: name,
  ...rest
}: ProxyOptions): Portal {
  const allocator = new PortAllocator(undefined, Math.random);
  if (portal === 'nftables') return new NftablesPortal({ allocator, ...rest });
  if (portal === 'transparent') {
    const route = { ...DEFAULT_ROUTE, notrack: rest.notrack ?? false };
    const transparent = { route, socket: transparentSocket };
    return new NftablesPortal({ allocator, ...rest, transparent });
  }
  if (portal !== 'address') {
    const flavor = portal === 'iptables-nft' ? 'nft' : 'legacy';
    return new IptablesPortal({ allocator, tools: () => findTools(systemExec, flavor), ...rest });
  }
  if (name === undefined) return new AddressPortal(rest);
  const keeper = new AddressKeeper({
    link: new LinuxInterface(name),
    removeOnClose: false,
    clock: systemClock,
    random: Math.random,
  });
  return new AddressPortal({ keeper, ...rest });
}
