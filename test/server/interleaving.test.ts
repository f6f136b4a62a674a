import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { type WatchCall, startApiRig } from '../support/api-rig.ts';
import { ClientState, emptyCluster, NODES, perform, step } from '../support/cluster.ts';
import { holdsAsync } from '../support/property.ts';

const CLIENTS = 4;

type Action =
  | { readonly kind: 'change'; readonly step: Parameters<typeof perform>[1] }
  | { readonly kind: 'request' | 'reconnect' | 'pause' | 'resume'; readonly client: number }
  | { readonly kind: 'turn' };

const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 4, arbitrary: step.map((step) => ({ kind: 'change' as const, step })) },
  {
    weight: 4,
    arbitrary: fc.record({ kind: fc.constant('request' as const), client: fc.nat(CLIENTS - 1) }),
  },
  fc.record({
    kind: fc.constantFrom('reconnect' as const, 'pause' as const, 'resume' as const),
    client: fc.nat(CLIENTS - 1),
  }),
  { weight: 2, arbitrary: fc.constant({ kind: 'turn' as const }) },
);

/** A client that sends a request on request, and answers a Sync with nothing by itself. */
class Watcher {
  readonly #open: () => WatchCall;
  readonly #node: string;
  #call: WatchCall;
  #state = new ClientState();
  #asked = 0;

  constructor(node: string, open: () => WatchCall) {
    this.#node = node;
    this.#open = open;
    this.#call = open();
  }

  request(): void {
    // One may be ahead, as long as something is sure to come: the rest is asked for at the end.
    if (this.#asked > 0) return;
    this.#asked++;
    this.#call.request(this.#node);
  }

  reconnect(): void {
    this.#call.cancel();
    this.#call = this.#open();
    this.#state = new ClientState();
    this.#asked = 0;
  }

  pause(): void {
    this.#call.pause();
  }

  resume(): void {
    this.#call.resume();
  }

  /** Asks until it has seen the service `end`, which is the last thing that comes. */
  async catchUp(end: string): Promise<ClientState> {
    this.resume();
    for (;;) {
      this.request();
      for (const item of await this.#call.changeSet()) this.#state.apply(item);
      this.#asked--;
      if ([...this.#state.entries.keys()].some((key) => key.endsWith(end))) return this.#state;
    }
  }
}

t.test('whatever clients do, each finally has the state of the server', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      const cluster = (await emptyCluster()).complete();
      const rig = await startApiRig(t, { cluster });
      const watchers = [...NODES, ''].map(
        (node) => new Watcher(node, node === '' ? rig.watchGlobal : rig.watch),
      );
      for (const action of actions) {
        if (action.kind === 'change') perform(cluster, action.step);
        else if (action.kind === 'turn') await new Promise(setImmediate);
        else watchers[action.client]?.[action.kind]();
      }
      cluster.service('zz/end');
      for (const [index, watcher] of watchers.entries()) {
        const node = [...NODES, ''][index] ?? '';
        const fresh = new Watcher(node, node === '' ? rig.watchGlobal : rig.watch);
        const end = node === '' ? 'zz|end||' : 'zz/end';
        const [state, wanted] = [await watcher.catchUp(end), await fresh.catchUp(end)];
        assert.deepEqual(state.sorted(), wanted.sorted());
      }
      rig.close();
      rig.server.destroy();
    }),
    6000,
  );
});
