/**
 * Writes state in kpng's format: every key, absent values as null, protocols as numbers. Go kpng refuses the whole file
 * for an unknown key, and crashes for session affinity and endpoints without addresses, so these extensions are
 * optional. It also crashes for nodes and endpoints without topology, which is therefore always written.
 */
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import type { Endpoint, Service } from '../api/generated/localv1/api.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { zoneOf } from '../store/stored.ts';
import type { Cell } from '../store/table.ts';
import { flowText } from '../util/yaml-text.ts';

/** An item of `nodes`. Go kpng does not read the zone label, so its zone is written as the topology's. */
function nodeText(from: Node): string {
  const { name, labels, annotations } = from;
  const topology = { node: from.topology?.node ?? '', zone: zoneOf(from) };
  const node = { labels: sorted(labels), annotations: sorted(annotations), topology };
  return `- name: ${flowText(name)}\n${blockText('  ', node)}`;
}

/** An item of `services`. `extended`: with what Go kpng cannot read. */
function serviceText(
  service: Service,
  endpoints: readonly EndpointInfo[],
  extended: boolean,
): string {
  const { ips, ports, sessionAffinity } = service;
  const head = {
    namespace: service.namespace,
    name: service.name,
    type: service.type,
    labels: sorted(service.labels),
    annotations: sorted(service.annotations),
  };
  const addresses = {
    clusterips: ips?.clusterIPs,
    externalips: ips?.externalIPs,
    loadbalancerips: ips?.loadBalancerIPs,
    headless: ips?.headless,
  };
  const tail = {
    externaltraffictolocal: service.externalTrafficToLocal,
    sessionaffinity: extended
      ? sessionAffinity && {
          clientip: { timeoutseconds: sessionAffinity.value.timeoutSeconds },
        }
      : null,
    internaltraffictolocal: service.internalTrafficToLocal,
    healthchecknodeport: service.healthCheckNodePort,
  };
  return [
    `- service:\n${blockText('    ', head)}`,
    ips === undefined ? '    ips: null\n' : `    ips:\n${blockText('      ', addresses)}`,
    blockText('    ', {
      ipfilters: service.ipFilters.map(({ targetIPs, sourceRanges }) => {
        return { targetips: targetIPs, sourceranges: sourceRanges };
      }),
      mapip: service.mapIP,
    }),
    ports.length === 0 ? '    ports: []\n' : '    ports:\n',
    ...ports.map((port) => `    - ${flowText(lowerKeys(port))}\n`),
    blockText('    ', tail),
    endpoints.length === 0 ? '  endpoints: []\n' : '  endpoints:\n',
    ...endpoints.map((each) => endpointText(each, extended)),
  ].join('');
}

function endpointText(info: EndpointInfo, extended: boolean): string {
  const { conditions, hints, topology } = info;
  const nodes = extended && hints !== undefined && hints.nodes.length > 0;
  const text = blockText('    ', {
    hash: info.hash,
    namespace: info.namespace,
    sourcename: info.sourceName,
    servicename: info.serviceName,
    endpoint: info.endpoint && addressesOf(info.endpoint),
    conditions: conditions && {
      ready: conditions.ready,
      ...(extended && conditions.serving && { serving: true }),
      ...(extended && conditions.terminating && { terminating: true }),
    },
    podname: info.podName,
    topology: topology ?? { node: '', zone: '' },
    hints: hints && { zones: hints.zones, ...(nodes && { nodes: hints.nodes }) },
  });
  return `  - ${text.slice(4)}`;
}

function addressesOf({ hostname, ips, portOverrides }: Endpoint): object {
  return { hostname, ips, local: false, portoverrides: portOverrides, scopes: null };
}

function lowerKeys(object: object): object {
  return Object.fromEntries(
    Object.entries(object).map(([key, value]: [string, unknown]) => [key.toLowerCase(), value]),
  );
}

function sorted(map: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(map).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** A map in block style, one value per line. */
function blockText(indent: string, map: Readonly<Record<string, unknown>>): string {
  return Object.entries(map)
    .map(([key, value]) => `${indent}${key}: ${flowText(value)}\n`)
    .join('');
}

/**
 * The state of a store at a pinned revision as the text of a state file, in pieces: nodes by name,
 * services by namespace and name, their endpoints by source and hash. Endpoints without their service are
 * left out. `extended`: with what Go kpng cannot read; default: no.
 */
export function* stateText(
  store: GlobalStore,
  revision: number,
  extended = false,
): Generator<string> {
  const { nodes, services, hasher } = store;
  yield* sectionText('nodes', nodes.cells(), (cell) => {
    const node = cell.at(revision);
    return node && nodeText(node);
  });
  yield* sectionText('services', services.cells(), (cell) => {
    const record = cell.at(revision);
    const endpoints = (record?.inPathOrder(hasher) ?? [])
      .map(([, info]) => info)
      .filter((info) => extended || info.endpoint !== undefined);
    return record?.service && serviceText(record.service, endpoints, extended);
  });
}

function* sectionText<T>(
  name: string,
  cells: Iterable<Cell<T>>,
  textOf: (cell: Cell<T>) => string | undefined,
): Generator<string> {
  let title = `${name}:\n`;
  for (const cell of cells) {
    const text = textOf(cell);
    if (text === undefined) continue;
    yield title + text;
    title = '';
  }
  if (title !== '') yield `${name}: []\n`;
}
