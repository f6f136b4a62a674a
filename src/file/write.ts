/**
 * Writes state in kpng's format: every key, absent values as null, protocols as numbers. Go kpng refuses the whole file
 * for an unknown key, and crashes for session affinity and endpoints without addresses, so these extensions are
 * optional. It also crashes for nodes and endpoints without topology, which is therefore always written.
 */
import type { EndpointInfo, Node } from '../api/generated/globalv1/api.ts';
import { plainEndpoint, plainService, sortedMap } from '../api/json.ts';
import type { GlobalStore } from '../store/global-store.ts';
import { zoneOf } from '../store/stored.ts';
import { flowText } from '../util/yaml-text.ts';

/** An item of `nodes`. Go kpng does not read the zone label, so its zone is written as the topology's. */
function nodeItem(from: Node): object {
  const { name, labels, annotations } = from;
  const topology = { node: from.topology?.node ?? '', zone: zoneOf(from) };
  return { name, labels: sortedMap(labels), annotations: sortedMap(annotations), topology };
}

function endpointItem(info: EndpointInfo, extended: boolean): object {
  const { endpoint, conditions, hints, topology } = info;
  const nodes = extended && hints !== undefined && hints.nodes.length > 0;
  return {
    hash: info.hash,
    namespace: info.namespace,
    sourcename: info.sourceName,
    servicename: info.serviceName,
    endpoint: endpoint && { ...plainEndpoint(endpoint), local: false, scopes: null },
    conditions: conditions && {
      ready: conditions.ready,
      ...(extended && conditions.serving && { serving: true }),
      ...(extended && conditions.terminating && { terminating: true }),
    },
    podname: info.podName,
    topology: topology ?? { node: '', zone: '' },
    hints: hints && { zones: hints.zones, ...(nodes && { nodes: hints.nodes }) },
  };
}

/** Maps in block style, and lists with one item per line. */
const BLOCKS: ReadonlySet<string> = new Set(['service', 'ips', 'ports', 'endpoints']);

/** A map in block style, one value per line. */
function blockText(indent: string, map: object): string {
  const lines = Object.entries(map).map(([key, value]: [string, unknown]) => {
    const isBlock = BLOCKS.has(key) && typeof value === 'object' && value !== null;
    if (!isBlock || (Array.isArray(value) && value.length === 0)) {
      return `${indent}${key}: ${flowText(value)}\n`;
    }
    if (!Array.isArray(value)) return `${indent}${key}:\n${blockText(`${indent}  `, value)}`;
    const items = value.map((each: object) =>
      key === 'ports' ? `${indent}- ${flowText(each)}\n` : itemText(indent, each),
    );
    return `${indent}${key}:\n${items.join('')}`;
  });
  return lines.join('');
}

/** A map as an item of a list. */
function itemText(indent: string, item: object): string {
  return `${indent}- ${blockText(`${indent}  `, item).trimStart()}`;
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
  yield* sectionText('nodes', nodes.keys(), (key) => {
    const node = nodes.at(key, revision);
    return node && nodeItem(node);
  });
  yield* sectionText('services', services.keys(), (key) => {
    const record = services.at(key, revision);
    const endpoints = (record?.inPathOrder(hasher) ?? [])
      .map(([, info]) => info)
      .filter((info) => extended || info.endpoint !== undefined);
    return (
      record?.service && {
        service: { ...plainService(record.service), ...(!extended && { sessionaffinity: null }) },
        endpoints: endpoints.map((each) => endpointItem(each, extended)),
      }
    );
  });
}

function* sectionText(
  name: string,
  keys: readonly string[],
  itemOf: (key: string) => object | undefined,
): Generator<string> {
  let title = `${name}:\n`;
  for (const key of keys) {
    const item = itemOf(key);
    if (item === undefined) continue;
    yield title + itemText('', item);
    title = '';
  }
  if (title !== '') yield `${name}: []\n`;
}
