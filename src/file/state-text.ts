import type { GlobalStore } from '../store/global-store.ts';
import { compareKeys, type Cell } from '../store/table.ts';
import { nodeText, serviceText } from './write.ts';

/**
 * The state of a store at a pinned revision as the text of a state file, in pieces: nodes by name,
 * services by namespace and name, their endpoints by source and hash. Endpoints without their service are
 * left out.
 */
export function* stateText(store: GlobalStore, revision: number): Generator<string> {
  const { nodes, services, hasher } = store;
  yield* sectionText('nodes', nodes.cells(), (cell) => {
    const stored = cell.at(revision);
    return stored && nodeText(stored.node);
  });
  yield* sectionText('services', services.cells(), (cell) => {
    const { service, endpoints } = cell.at(revision) ?? {};
    const sorted = (endpoints ?? [])
      .map(({ info }) => {
        const hash = hasher.endpointInfo(info);
        return { info, hash, key: `${info.sourceName}\0${hash.toString(16)}` };
      })
      .sort((a, b) => compareKeys(a.key, b.key));
    return service && serviceText(service.service, sorted);
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
