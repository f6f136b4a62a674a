import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { loadHasher } from '../../src/api/hash.ts';
import { ClusterHandover, NodeHandover, type Handover } from '../../src/file/handover.ts';
import { DEFAULT_FILE_LIMITS } from '../../src/file/limits.ts';
import { Parser } from '../../src/file/parser.ts';
import { StateBuilder } from '../../src/file/state-changes.ts';
import type { GlobalState } from '../../src/store/global-state.ts';
import { LocalState } from '../../src/store/local-state.ts';
import { nodeView } from '../support/node-view.ts';
import { holds } from '../support/property.ts';
import { stateOf } from '../support/state-file.ts';

const hasher = await loadHasher();

/** The text of a file: which services there are, with how many endpoints, and the node's zone. */
const content = fc
  .record({
    services: fc.dictionary(fc.constantFrom('a', 'b', 'c'), fc.array(fc.nat(3), { maxLength: 3 })),
    zone: fc.constantFrom('x', 'y'),
  })
  .map(({ services, zone }) =>
    JSON.stringify({
      nodes: [{ name: 'n1', topology: { zone } }],
      services: Object.entries(services).map(([name, pods]) => ({
        service: { name, ports: [{ port: 80 }] },
        endpoints: pods.map((pod) => ({
          podname: `pod-${pod}`,
          endpoint: { ips: { v4: [`10.0.0.${pod}`] } },
          topology: { node: `n${pod % 2}` },
          hints: { zones: [pod % 2 === 0 ? 'x' : 'y'] },
        })),
      })),
    }),
  );

/** What is done: a new content comes, or so many steps are taken. */
const deeds = fc.array(fc.oneof(content, fc.nat(4)), { maxLength: 20 });

/** Takes steps one by one, whatever comes in between, as the other side of the thread does. */
class Far<Step> {
  readonly #handover: Handover<Step>;
  readonly #take: (step: Step) => void;
  #steps: Iterator<Step, void, undefined> | undefined;

  constructor(handover: Handover<Step>, take: (step: Step) => void) {
    this.#handover = handover;
    this.#take = take;
  }

  /** Returns whether they have all been taken. */
  take(count: number): boolean {
    this.#steps ??= this.#handover.begin();
    for (let left = count; left > 0; left -= 1) {
      const step = this.#steps.next();
      if (step.done === true) {
        this.#steps = undefined;
        return true;
      }
      this.#take(structuredClone(step.value));
    }
    return false;
  }

  /** To the newest state. */
  takeAll(): void {
    while (this.#steps !== undefined && !this.take(1)) continue;
    while (!this.take(1)) continue;
  }
}

t.test(
  'for a node: whatever is parsed while a state is handed over, the newest one arrives',
  async (t) => {
    holds(
      t,
      fc.property(content, deeds, (first, list) => {
        const handover = new NodeHandover('n1', hasher);
        const local = new LocalState();
        const far = new Far(handover, (operation) => local.apply(operation));
        let state = stateOf(first);
        assert.equal(handover.update(state), true, 'the first state is told, even if it is empty');
        for (const deed of list) {
          if (typeof deed === 'number') {
            if (far.take(deed)) local.sync();
          } else {
            state = stateOf(deed);
            handover.update(state);
          }
        }
        far.takeAll();
        local.sync();
        const expected = [...nodeView(state, 'n1').values()].sort((a, b) =>
          a.key < b.key ? -1 : 1,
        );
        assert.deepEqual([...local.entries()], expected);
        assert.equal(handover.update(state), false, 'there is nothing to tell of the same state');
        // Of another state that looks the same to the node something may be told, in vain.
        const again = stateOf(first);
        if (!same(state, again)) assert.equal(handover.update(again), true);
      }),
    );
  },
);

function same(a: GlobalState, b: GlobalState): boolean {
  try {
    assert.deepEqual(nodeView(a, 'n1'), nodeView(b, 'n1'));
    return true;
  } catch {
    return false;
  }
}

t.test('for the cluster: the same', async (t) => {
  holds(
    t,
    fc.property(content, deeds, (first, list) => {
      const handover = new ClusterHandover();
      let here: GlobalState | undefined;
      let builder = new StateBuilder();
      const far = new Far(handover, (change) => builder.add(change));
      const arrive = (): void => {
        here = builder.finish();
        builder = new StateBuilder(here);
      };
      let state = stateOf(first);
      handover.update(state);
      for (const deed of list) {
        if (typeof deed === 'number') {
          if (far.take(deed)) arrive();
        } else {
          state = stateOf(deed);
          handover.update(state);
        }
      }
      while (!far.take(1)) continue;
      arrive();
      while (!far.take(1)) continue;
      arrive();
      assert.deepEqual(here?.services, state.services);
      assert.deepEqual(here?.nodes, state.nodes);
      assert.equal(handover.update(state), false);
    }),
  );
});

t.test(
  'a parser hands over nothing before the first valid content, and then in parts',
  async (t) => {
    const parser = new Parser(DEFAULT_FILE_LIMITS, new NodeHandover('', hasher));
    t.equal(parser.nextPart(), undefined);
    t.equal(parser.parse(Buffer.from('services: 1\n')).ok, false);
    t.equal(parser.nextPart(), undefined);
    const items = Array.from({ length: 2500 }, (_, n) => `- service: {name: s${n}}\n`).join('');
    t.match(parser.parse(Buffer.from(`services:\n${items}`)), {
      ok: true,
      changed: true,
      services: 2500,
      parsedItems: 2500,
    });
    const sizes: number[] = [];
    for (
      let part = parser.nextPart();
      part !== undefined && part.length > 0;
      part = parser.nextPart()
    ) {
      sizes.push(part.length);
    }
    t.strictSame(sizes, [1000, 1000, 500]);
    t.match(parser.parse(Buffer.from(`services:\n${items}# end\n`)), {
      ok: true,
      changed: false,
      parsedItems: 1,
    });
    t.strictSame(parser.nextPart(), []);
  },
);
