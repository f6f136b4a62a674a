import { sharedSocketsName, usesSharedSockets } from '../core/shared-service-ports.ts';
import type { EngineChange, ServicePortSpec } from '../spec.ts';

export class SharedSockets {
  readonly #users = new Map<string, number>();

  count(spec: ServicePortSpec | undefined, by: 1 | -1): void {
    if (spec === undefined || !usesSharedSockets(spec)) return;
    for (const { address } of spec.listen) {
      this.#users.set(address, (this.#users.get(address) ?? 0) + by);
    }
  }

  /** Those that have to be opened or closed now, as service ports without endpoints. `isThere`: whether one is open. */
  changes(isThere: (name: string) => boolean): EngineChange[] {
    return [...this.#users].flatMap(([address, users]): EngineChange[] => {
      const name = sharedSocketsName(address);
      if (users > 0 === isThere(name)) return [];
      if (users === 0) return [{ kind: 'remove', name }];
      const listen = [{ address, port: 0, traffic: 'internal', transparent: [] }] as const;
      const spec = { name, protocol: 'TCP', listen, endpoints: [] } as const;
      return [{ kind: 'set', spec: { ...spec, affinity: { kind: 'none' } } }];
    });
  }

  clear(): void {
    this.#users.clear();
  }
}

/** Service ports of shared sockets that a worker gets at once: some hundred kilobytes, which are garbage soon. */
const PART = 512;

/**
 * A large batch in parts, so that the whole is never in memory as text. Service ports of shared sockets do not depend on
 * each other; the others are in the last part.
 */
function inParts(changes: readonly EngineChange[]): (readonly EngineChange[])[] {
  if (changes.length <= PART || changes.some(({ kind }) => kind !== 'set')) return [changes];
  const isShared = (change: EngineChange) =>
    change.kind === 'set' && usesSharedSockets(change.spec);
  const shared = changes.filter(isShared);
  const parts = [];
  for (let start = 0; start < shared.length; start += PART) {
    parts.push(shared.slice(start, start + PART));
  }
  return [...parts, changes.filter((change) => !isShared(change))];
}

/** Applies a batch in parts: each is sent while the one before it is still being applied. */
export async function applyInParts(
  changes: readonly EngineChange[],
  apply: (part: readonly EngineChange[]) => Promise<void>,
): Promise<void> {
  let before: Promise<void> | undefined;
  for (const part of inParts(changes)) {
    const applied = apply(part);
    // The one before may fail first.
    applied.catch(() => undefined);
    await before;
    before = applied;
  }
  await before;
}
