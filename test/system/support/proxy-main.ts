/** Runs on the node of a test network: engine, proxier and portal, told what to serve line by line. */
import type { DeepPartial, Endpoint, Service } from '../../../src/api/generated/localv1/api.ts';
import {
  flowsCleared,
  flowsNotCleared,
  portalFailed,
  portalLost,
  portalWritten,
} from '../../../src/portal/events.ts';
import { NftablesPortal } from '../../../src/portal/nftables/portal.ts';
import { PortAllocator } from '../../../src/portal/port-allocator.ts';
import { Proxier } from '../../../src/proxier/proxier.ts';
import { createNodeEngine } from '../../../src/proxysocket/node-engine.ts';
import { endpoint } from '../../support/messages.ts';
import { entry, TestView } from '../../support/views.ts';
import { serveLines, tell } from './lines.ts';

/** One service: its fields, and its endpoints as addresses or with more fields. */
export interface WantedService {
  readonly service: DeepPartial<Service>;
  readonly endpoints: readonly (string | { address: string; more: DeepPartial<Endpoint> })[];
}

export type ProxyRequest =
  { do: 'sync'; set: Record<string, WantedService>; remove: readonly string[] } | { do: 'usage' };

const engine = createNodeEngine();
const options = JSON.parse(process.argv[2] ?? '{}') as { nodePortAddresses?: string[] };
const portal = new NftablesPortal({
  allocator: new PortAllocator(undefined, Math.random),
  ...options,
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

serveLines(async (request: ProxyRequest) => {
  if (request.do === 'usage') return process.cpuUsage();
  const { set, remove } = request;
  const entries = Object.entries(set).map(([key, { service, endpoints }]) =>
    entry(key, service, Object.fromEntries(endpoints.map(readEndpoint))),
  );
  view.set(...entries);
  view.remove(...remove);
  const begin = performance.now();
  await proxier.sync({ view, changed: new Set([...Object.keys(set), ...remove]) });
  return {
    ms: performance.now() - begin,
    problems: proxier.snapshot().problems.map(({ message }) => message),
  };
});

function readEndpoint(given: WantedService['endpoints'][number]): [string, Endpoint] {
  const { address, more } = typeof given === 'string' ? { address: given, more: {} } : given;
  const ips = address.includes(':') ? { v6: [address] } : { v4: [address] };
  return [address, endpoint(address, { ips, ...more })];
}
