import type { PortalSpec } from '../portal/portal.ts';
import type { Engine } from '../proxysocket/engine.ts';
import type { EngineChange, ListenSpec, Protocol, ServicePortSpec } from '../proxysocket/spec.ts';
import { changesBetween, samePortals } from './diff.ts';

/** The owners of addresses with a fixed port; each can have only one. */
class ListenOwners {
  readonly #owners = new Map<string, string>();

  constructor(wanted: Iterable<Applied | undefined>) {
    for (const each of wanted) {
      if (each === undefined) continue;
      const { name, protocol, listen } = each.spec;
      for (const one of listen) {
        if (one.port !== 0) this.#owners.set(portKey(protocol, one), name);
      }
    }
  }

  /** Whether another service port is to listen there. */
  isWantedByOther({ name, protocol }: ServicePortSpec, listen: ListenSpec): boolean {
    return (this.#owners.get(portKey(protocol, listen)) ?? name) !== name;
  }
}

/** A service port with its previous listeners in addition to the new ones, except those that others want. */
function keepOldListeners(
  now: ServicePortSpec,
  previous: ServicePortSpec,
  owners: ListenOwners,
): ServicePortSpec {
  // A changed protocol makes it another service port, whose listeners close with the old one.
  if (now.protocol !== previous.protocol) return now;
  const counts = new Map<string, number>();
  for (const each of now.listen)
    counts.set(listenerKey(each), (counts.get(listenerKey(each)) ?? 0) + 1);
  const kept = previous.listen.filter((each) => {
    const count = counts.get(listenerKey(each)) ?? 0;
    if (count > 0) counts.set(listenerKey(each), count - 1);
    return count === 0 && !owners.isWantedByOther(now, each);
  });
  return kept.length === 0 ? now : { ...now, listen: [...now.listen, ...kept] };
}

function portKey(protocol: Protocol, { address, port }: ListenSpec): string {
  return `${protocol} ${address} ${port}`;
}

/** The engine treats listeners with equal values of these as the same. */
function listenerKey({ address, port, traffic }: ListenSpec): string {
  return `${address} ${port} ${traffic}`;
}

/** One service port as applied to the engine, or about to be, and its portals. */
export interface Applied {
  readonly spec: ServicePortSpec;
  readonly portals: readonly PortalSpec[];
}

/** The effect of a batch on one service port. */
export interface Step {
  readonly kind: 'added' | 'changed' | 'removed' | 'endpointsChanged';
  readonly servicePort: string;
  readonly protocol: Protocol;
  readonly portals: readonly PortalSpec[];
}

/** A service port of a failed batch: its state in the engine is unknown. */
interface Uncertain {
  /** Whether the engine may have it with a different protocol from the applied one. */
  readonly protocolChanged: boolean;
}

/** The surplus of a service port: all of it, or some listeners. */
type Surplus = 'service port' | 'listeners';

/** Keeps an engine in step with the desired state, with minimal batches. */
export class EngineSync {
  readonly #engine: Engine;
  readonly #applied = new Map<string, Applied>();
  readonly #pending = new Map<string, Applied | undefined>();
  readonly #uncertain = new Map<string, Uncertain>();
  readonly #surplus = new Map<string, Surplus>();

  constructor(engine: Engine) {
    this.#engine = engine;
  }

  /** Sets the desired state of a service port; undefined: removed. */
  want(name: string, wanted: Applied | undefined): void {
    this.#pending.set(name, wanted);
  }

  /** Whether a service port is applied or wanted. */
  isKnown(name: string): boolean {
    return this.#applied.has(name) || this.#pending.get(name) !== undefined;
  }

  /**
   * Applies all differences in one batch. Rejects with the engine's error; they stay due then, and the next batch
   * sets these service ports from scratch.
   */
  flush(): Promise<Step[]> {
    return this.#flush(this.#pending);
  }

  /**
   * As `flush`, but keeps listeners open unless another service port needs their address. Unneeded ones are
   * `surplus` until `closeSurplus`.
   */
  async flushKeepingListeners(): Promise<Step[]> {
    let known: ListenOwners | undefined;
    const ownersOf = (): ListenOwners => (known ??= new ListenOwners(this.#pending.values()));
    const due = new Map<string, Applied | undefined>();
    const kept = new Map<string, { surplus: Surplus; after: Applied | undefined }>();
    const left: Step[] = [];
    for (const [name, after] of this.#pending) {
      const before = this.#uncertain.has(name) ? undefined : this.#applied.get(name);
      const isFree = before?.spec.listen.every(
        (each) => !ownersOf().isWantedByOther(before.spec, each),
      );
      if (before === undefined) {
        due.set(name, after);
      } else if (after !== undefined) {
        const spec = keepOldListeners(after.spec, before.spec, ownersOf());
        due.set(name, { ...after, spec });
        if (spec !== after.spec) kept.set(name, { surplus: 'listeners', after });
      } else if (isFree === true) {
        kept.set(name, { surplus: 'service port', after });
        const step = this.#stepOf(name, undefined, []);
        if (step !== undefined) left.push(step);
      } else {
        due.set(name, undefined);
      }
    }
    const steps = await this.#flush(due);
    for (const [name, { surplus, after }] of kept) {
      this.#pending.set(name, after);
      this.#surplus.set(name, surplus);
    }
    return [...steps, ...left];
  }

  /** The names of service ports with surplus listeners. */
  surplus(): IterableIterator<string> {
    return this.#surplus.keys();
  }

  /** Closes the surplus listeners of these service ports. Rejects as `flush` does. */
  async closeSurplus(names: Iterable<string>): Promise<void> {
    const due = new Map<string, Applied | undefined>();
    for (const name of names) {
      if (this.#surplus.has(name)) due.set(name, this.#pending.get(name));
    }
    await this.#flush(due);
  }

  async #flush(due: ReadonlyMap<string, Applied | undefined>): Promise<Step[]> {
    const changes: EngineChange[] = [];
    const steps: Step[] = [];
    for (const [name, after] of due) {
      const mine = this.#changesOf(name, after);
      const step = this.#stepOf(name, after, mine);
      if (step !== undefined) steps.push(step);
      changes.push(...mine);
    }
    try {
      if (changes.length > 0) await this.#engine.apply(changes);
    } catch (error) {
      for (const [name, after] of due) {
        const mine = this.#changesOf(name, after);
        const protocolChanged =
          mine.length > 1 || this.#uncertain.get(name)?.protocolChanged === true;
        if (mine.length > 0) this.#uncertain.set(name, { protocolChanged });
      }
      throw error;
    }
    for (const [name, after] of due) {
      if (after === undefined) this.#applied.delete(name);
      else this.#applied.set(name, after);
      this.#pending.delete(name);
      this.#uncertain.delete(name);
      this.#surplus.delete(name);
    }
    return steps;
  }

  #changesOf(name: string, after: Applied | undefined): EngineChange[] {
    const before = this.#applied.get(name)?.spec;
    const uncertain = this.#uncertain.get(name);
    return uncertain === undefined
      ? changesBetween(before, after?.spec)
      : changesIfUncertain(name, uncertain, before, after?.spec);
  }

  /** A service port with only surplus listeners has been reported as removed. */
  #stepOf(
    name: string,
    after: Applied | undefined,
    changes: readonly EngineChange[],
  ): Step | undefined {
    const reportedGone = this.#surplus.get(name) === 'service port';
    return stepBetween(reportedGone ? undefined : this.#applied.get(name), after, changes);
  }
}

/** Steps to `after` from any state that a failed batch may have left. */
function changesIfUncertain(
  name: string,
  uncertain: Uncertain,
  before: ServicePortSpec | undefined,
  after: ServicePortSpec | undefined,
): EngineChange[] {
  if (after === undefined) return [{ kind: 'remove', name }];
  const replace =
    uncertain.protocolChanged || (before !== undefined && before.protocol !== after.protocol);
  return replace
    ? [
        { kind: 'remove', name },
        { kind: 'set', spec: after },
      ]
    : [{ kind: 'set', spec: after }];
}

function stepBetween(
  before: Applied | undefined,
  after: Applied | undefined,
  changes: readonly EngineChange[],
): Step | undefined {
  const subject = after ?? before;
  if (subject === undefined) return undefined;
  const { name, protocol } = subject.spec;
  const step = { servicePort: name, protocol, portals: subject.portals };
  if (before === undefined) return { kind: 'added', ...step };
  if (after === undefined) return { kind: 'removed', ...step };
  if (changes.some(({ kind }) => kind === 'set')) return { kind: 'changed', ...step };
  if (changes.length > 0) return { kind: 'endpointsChanged', ...step };
  return samePortals(before.portals, after.portals) ? undefined : { kind: 'changed', ...step };
}
