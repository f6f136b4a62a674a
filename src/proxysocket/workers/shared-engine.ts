import { addActivity, NO_ACTIVITY, type Activity } from '../core/activity.ts';
import { messageOf } from '../../errors.ts';
import { SerialQueue } from '../../util/serial-queue.ts';
import type { Engine, Heir, ServicePortSnapshot } from '../engine.ts';
import { listenerOpened, type ListenerOpened } from '../events.ts';
import type { InspectQuery, Inspection } from '../inspect.ts';
import type { LimitChange } from '../limits.ts';
import type { EngineChange, ServicePortSpec } from '../spec.ts';
import { Homes, type Steering } from './homes.ts';
import { following, leading, placesInTheWay, placesOf, without, type Bound } from './listeners.ts';
import { mergeInspections, mergeSnapshots } from './merge.ts';
import { shareOfLimits } from './share.ts';

/**
 * Several engines that listen at the same places, each with sockets of its own, so that the kernel spreads
 * clients over them (SO_REUSEPORT). Seen from outside it is one engine.
 *
 * One of them, the leader of a service port, opens its listeners first, as if it were alone; so a place
 * that somebody else has is found out, and a port is chosen once. The others listen where the leader does.
 * They follow in a fixed order, so that their sockets come in the same order at every place.
 */
export class SharedEngine implements Engine {
  readonly #engines: readonly Engine[];
  readonly #homes: Homes;
  readonly #specs = new Map<string, ServicePortSpec>();
  /** The service ports as each engine has been told of them. */
  readonly #told: readonly Map<string, ServicePortSpec>[];
  /** Service ports of which a listener of the leader was not open when the others were told. */
  readonly #incomplete = new Set<string>();
  readonly #queue = new SerialQueue();
  readonly #onOpened = ({ servicePort }: ListenerOpened): void => this.#opened(servicePort);
  #isOver = false;

  /** `engines`: at least one. They are closed with this one. */
  constructor(engines: readonly Engine[], steering: Steering) {
    this.#engines = engines;
    this.#told = engines.map(() => new Map<string, ServicePortSpec>());
    this.#homes = new Homes(engines.length, steering);
    listenerOpened.subscribe(this.#onOpened);
  }

  get kind(): Engine['kind'] {
    return this.#engines.every(({ kind }) => kind === 'linux') ? 'linux' : 'node';
  }

  /** See `Engine`. Every engine is tried, whatever happens to the others. */
  apply(changes: readonly EngineChange[]): Promise<void> {
    return this.#queue.run(() => this.#apply(changes));
  }

  async setLimits(limits: LimitChange): Promise<void> {
    const share = shareOfLimits(limits, this.#engines.length);
    await Promise.all(this.#engines.map(async (engine) => engine.setLimits?.(share)));
  }

  snapshot(names?: ReadonlySet<string>): ServicePortSnapshot[] {
    const parts = this.#engines.map((engine) => engine.snapshot(names));
    return mergeSnapshots(parts, this.#specs, (name) => this.#homes.leaderOf(name));
  }

  names(): string[] {
    const names = this.#engines.flatMap((engine) => engine.names?.() ?? [...this.#specs.keys()]);
    return [...new Set(names)];
  }

  activity(): Activity | undefined {
    let total: Activity = NO_ACTIVITY;
    for (const engine of this.#engines) {
      const activity = engine.activity?.();
      if (activity === undefined) return undefined;
      total = addActivity(total, activity);
    }
    return total;
  }

  async inspect(query: InspectQuery): Promise<Inspection> {
    const found = await Promise.all(this.#engines.map(async (engine) => engine.inspect?.(query)));
    return mergeInspections(
      found.flatMap((each) => each ?? []),
      query.maxConnections,
    );
  }

  async close(heir?: Heir): Promise<void> {
    this.#end();
    await Promise.all(this.#engines.map((engine) => engine.close(heir)));
  }

  async destroy(): Promise<void> {
    this.#end();
    await Promise.all(this.#engines.map((engine) => engine.destroy()));
  }

  #end(): void {
    this.#isOver = true;
    listenerOpened.unsubscribe(this.#onOpened);
  }

  async #apply(changes: readonly EngineChange[]): Promise<void> {
    carryOut(this.#specs, changes);
    const errors: unknown[] = [];
    const done = this.#engines.map(() => new Set<EngineChange>());
    await this.#each(errors, (index) => this.#toGiveUp(index, changes));
    await this.#each(errors, (index) => this.#toLead(index, changes, done[index]));
    await this.#tell(errors, changes, done);
    if (errors.length === 1) throw errors[0];
    if (errors.length > 1) throw new AggregateError(errors, errors.map(messageOf).join('; '));
  }

  /**
   * Before all else: what is in the way of a listener on every address, or of one on a single address
   * of these. No socket can be passed on there, and those of all engines have to go.
   */
  #toGiveUp(index: number, changes: readonly EngineChange[]): EngineChange[] {
    const wanted = changes.flatMap((change) => (change.kind === 'set' ? [change.spec] : []));
    if (!wanted.some(({ listen }) => listen.some(({ port }) => port !== 0))) return [];
    return changes.flatMap((change): EngineChange[] => {
      const told = this.#told[index]?.get(nameOf(change));
      if (told === undefined || change.kind === 'endpoints') return [];
      const places = placesInTheWay(told, wanted);
      return places.size === 0 ? [] : [{ kind: 'set', spec: without(told, places) }];
    });
  }

  /**
   * The first round of a batch for one engine: the service ports that it leads, and whatever makes
   * others give up the places of these, so that they get the sockets. Notes in `done` what need not be
   * told again.
   */
  #toLead(
    index: number,
    changes: readonly EngineChange[],
    done: Set<EngineChange> = new Set(),
  ): EngineChange[] {
    const led = changes.filter(
      (change) => change.kind === 'set' && this.#homes.leaderOf(change.spec.name) === index,
    );
    const names = new Set(led.map(nameOf));
    const places = new Set(
      led.flatMap((change) => (change.kind === 'set' ? placesOf(change.spec) : [])),
    );
    return changes.flatMap((change): EngineChange[] => {
      const name = nameOf(change);
      if (names.has(name)) {
        done.add(change);
        return [change];
      }
      const told = this.#told[index]?.get(name);
      if (told === undefined || !placesOf(told).some((place) => places.has(place))) return [];
      if (change.kind === 'remove') {
        done.add(change);
        return [change];
      }
      return change.kind === 'set' ? [{ kind: 'set', spec: without(told, places) }] : [];
    });
  }

  /** The second round: what the engines have not been told in the first one. */
  async #tell(
    errors: unknown[],
    changes: readonly EngineChange[],
    done: readonly ReadonlySet<EngineChange>[],
  ): Promise<void> {
    const set = changes.flatMap((change) => (change.kind === 'set' ? [change.spec.name] : []));
    const bound = this.#boundPorts(new Set(set));
    // At once: a listener may open while the others are being told.
    for (const name of set) {
      const wanted = this.#specs.get(name)?.listen.length ?? 0;
      if ((bound.get(name)?.length ?? 0) < wanted) this.#incomplete.add(name);
      else this.#incomplete.delete(name);
    }
    await this.#each(errors, (index) =>
      changes.flatMap((change) =>
        done[index]?.has(change) === true ? [] : this.#forFollower(index, change, bound),
      ),
    );
  }

  #forFollower(
    index: number,
    change: EngineChange,
    bound: ReadonlyMap<string, readonly Bound[]>,
  ): EngineChange[] {
    const name = nameOf(change);
    const isLeader = this.#homes.leaderOf(name) === index;
    const had = this.#told[index]?.has(name) === true;
    const spec = this.#specs.get(name);
    const has = spec !== undefined && this.#homes.serves(index, spec);
    if (change.kind === 'remove') return had || isLeader ? [change] : [];
    // An engine complains of endpoints of what it does not know; one of them is enough.
    if (spec === undefined) return isLeader ? [change] : [];
    if (!has) return change.kind === 'set' && had ? [{ kind: 'remove', name }] : [];
    if (change.kind === 'endpoints') return [change];
    return [{ kind: 'set', spec: following(spec, bound.get(name) ?? [], this.#engines.length) }];
  }

  /** What the leaders of these service ports listen on. */
  #boundPorts(names: ReadonlySet<string>): Map<string, Bound[]> {
    const bound = new Map<string, Bound[]>();
    for (const [index, engine] of this.#engines.entries()) {
      const mine = [...names].filter((name) => this.#homes.leaderOf(name) === index);
      if (mine.length === 0) continue;
      for (const { name, listeners } of engine.snapshot(new Set(mine))) {
        bound.set(
          name,
          listeners.flatMap((each) =>
            each.state === 'listening' ? [{ listen: each.listen, port: each.boundPort }] : [],
          ),
        );
      }
    }
    return bound;
  }

  /** A leader has got a listener that it could not open before: the others follow. */
  #opened(name: string): void {
    if (!this.#incomplete.delete(name)) return;
    void this.#queue.run(async () => {
      const spec = this.#specs.get(name);
      if (this.#isOver || spec === undefined) return;
      const change: EngineChange = { kind: 'set', spec };
      const done = this.#engines.map(
        (_, index) => new Set(this.#homes.leaderOf(name) === index ? [change] : []),
      );
      // An engine that fails tells of it itself, and is told the same with the next batch.
      await this.#tell([], [change], done);
    });
  }

  #asLeader(index: number, change: EngineChange): EngineChange {
    if (change.kind !== 'set' || this.#homes.leaderOf(change.spec.name) !== index) return change;
    return { kind: 'set', spec: leading(change.spec, this.#engines.length) };
  }

  async #each(
    errors: unknown[],
    changesOf: (index: number) => readonly EngineChange[],
  ): Promise<void> {
    for (const [index, engine] of this.#engines.entries()) {
      const changes = changesOf(index).map((change) => this.#asLeader(index, change));
      if (changes.length === 0) continue;
      carryOut(this.#told[index], changes);
      try {
        await engine.apply(changes);
      } catch (error) {
        errors.push(error);
      }
    }
  }
}

function nameOf(change: EngineChange): string {
  return change.kind === 'set' ? change.spec.name : change.name;
}

/** Carries a batch out on plain specs. */
function carryOut(
  specs: Map<string, ServicePortSpec> | undefined,
  changes: readonly EngineChange[],
): void {
  for (const change of changes) if (change.kind === 'remove') specs?.delete(change.name);
  for (const change of changes) {
    if (change.kind === 'set') specs?.set(change.spec.name, change.spec);
    if (change.kind !== 'endpoints') continue;
    const spec = specs?.get(change.name);
    if (spec !== undefined) specs?.set(change.name, { ...spec, endpoints: change.endpoints });
  }
}
