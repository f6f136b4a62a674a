import type { GlobalStore } from '../store/global-store.ts';
import type { ServiceRecord } from '../store/service-record.ts';
import { compareKeys } from '../store/table.ts';
import { nodeText, serviceText, type WrittenEndpoint } from './write.ts';

/**
 * The state of a store at a pinned revision as the text of a state file, in pieces: nodes by name,
 * services by namespace and name, their endpoints by source and hash. Endpoints of services that are
 * not there have no place in it.
 */
export function* stateText(
  store: GlobalStore,
  revision: number,
): Generator<string, void, undefined> {
  const { nodes, services, hasher } = store;
  let title = 'nodes:\n';
  for (const cell of nodes.cells()) {
    const stored = cell.at(revision);
    if (stored === undefined) continue;
    yield title + nodeText(stored.node);
    title = '';
  }
  if (title !== '') yield 'nodes: []\n';
  title = 'services:\n';
  for (const cell of services.cells()) {
    const record = cell.at(revision);
    if (record?.service === undefined) continue;
    const hash = (info: WrittenEndpoint['info']): bigint => hasher.endpointInfo(info);
    yield title + serviceText(record.service.service, endpointsOf(record, hash));
    title = '';
  }
  if (title !== '') yield 'services: []\n';
}

function endpointsOf(
  { endpoints }: ServiceRecord,
  hash: (info: WrittenEndpoint['info']) => bigint,
): readonly WrittenEndpoint[] {
  return endpoints
    .map(({ info }) => ({ info, hash: hash(info) }))
    .sort(
      (a, b) =>
        compareKeys(a.info.sourceName, b.info.sourceName) ||
        compareKeys(a.hash.toString(16), b.hash.toString(16)),
    );
}
