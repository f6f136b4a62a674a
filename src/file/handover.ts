/** What the thread that parses a file hands over of each state: see parser.ts. */
import type { Hasher } from '../api/hash.ts';
import type { DataOp } from '../api/ops.ts';
import type { GlobalState } from '../store/global-state.ts';
import { GlobalStore } from '../store/global-store.ts';
import { LocalFollower } from '../store/local-follower.ts';
import { writeState } from './feed.ts';
import { stateChanges, type StateChange } from './state-changes.ts';

/** Works out the steps from one state to the next, for somebody who takes them part by part. */
export interface Handover<Step> {
  /** Takes a new state. Returns whether there is anything to hand over. */
  update(state: GlobalState): boolean;
  /**
   * The steps from the state that was handed over last (at first: from nothing) to the newest. There may
   * be updates while they are gone through; those are for the next time.
   */
  begin(): Iterator<Step, void, undefined>;
  /** How much there is to copy in a step, in endpoints. */
  weightOf(step: Step): number;
}

/** Hands over the state of the cluster. */
export class ClusterHandover implements Handover<StateChange> {
  #handedOver: GlobalState | undefined;
  #newest: GlobalState | undefined;

  update(state: GlobalState): boolean {
    this.#newest = state;
    return (
      this.#handedOver === undefined || stateChanges(this.#handedOver, state).next().done !== true
    );
  }

  begin(): Iterator<StateChange, void, undefined> {
    const former = this.#handedOver;
    this.#handedOver = this.#newest;
    return this.#newest === undefined ? [].values() : stateChanges(former, this.#newest);
  }

  weightOf(step: StateChange): number {
    return step.kind === 'endpoints' ? step.endpoints.length : 1;
  }
}

/** Hands over what one node needs of it. */
export class NodeHandover implements Handover<DataOp> {
  readonly #store: GlobalStore;
  readonly #follower: LocalFollower;
  #former: GlobalState | undefined;

  constructor(nodeName: string, hasher: Hasher) {
    // There are two states at most: the one that is being handed over, and the newest.
    this.#store = new GlobalStore({ hasher, maxHistory: Number.MAX_SAFE_INTEGER });
    this.#follower = new LocalFollower(this.#store, nodeName);
  }

  update(state: GlobalState): boolean {
    const former = this.#former;
    this.#former = state;
    this.#store.update((transaction) => writeState(transaction, former, state));
    return this.#follower.differs();
  }

  begin(): Iterator<DataOp, void, undefined> {
    return this.#follower.operations();
  }

  weightOf(): number {
    return 1;
  }
}
