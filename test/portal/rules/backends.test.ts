import assert from 'node:assert/strict';
import * as fc from 'fast-check';
import t from 'tap';
import { iptablesBackend } from '../../../src/portal/iptables/backend.ts';
import { SLOT_ORDER, slotName } from '../../../src/portal/iptables/script.ts';
import { nftablesBackend } from '../../../src/portal/nftables/backend.ts';
import { KINDS, setName } from '../../../src/portal/nftables/table.ts';
import {
  type Backend,
  type Element,
  Elements,
  type RuleConfig,
} from '../../../src/portal/rules/backend.ts';
import type { Reaction } from '../../support/fake-exec.ts';
import { FakeIptables } from '../../support/fake-iptables.ts';
import { FakeNft } from '../../support/fake-nft.ts';
import { update } from '../../support/portals.ts';
import { holdsAsync } from '../../support/property.ts';
import { CONFIG as DUAL } from '../../support/rule-rigs.ts';

const CONFIG: RuleConfig = {
  ...DUAL,
  nodePortNetworks: { 4: ['192.0.2.0/24', '198.51.100.0/24'], 6: ['::/0'] },
};

/** A made-up kernel. */
interface Kernel {
  broken: Reaction | undefined;
  /** A process of ours. */
  start(): Backend;
  /** All that it has. */
  state(): unknown;
  /** Another program empties a chain or set, or removes one item of it. `pick`: which. */
  damage(pick: number, isEmptied: boolean): void;
}

class NftKernel extends FakeNft implements Kernel {
  start = (): Backend => nftablesBackend(this.exec, 'kpng-userspace');
  state = (): unknown => this.tables;
  damage(pick: number, isEmptied: boolean): void {
    const { chains, sets } = this.table();
    const set = [...sets.values()][pick % sets.size];
    const [key = ''] = set?.keys() ?? [];
    if (isEmptied) set?.clear();
    else if (pick % 2 === 0) set?.delete(key);
    else chains.set('refuse', []);
  }
}

class IptablesKernel extends FakeIptables implements Kernel {
  start(): Backend {
    const tools = { name: 'iptables-nft', flavor: 'nft', version: '1.8.9' } as const;
    return iptablesBackend(this.exec, async () => tools, 'KUBE');
  }
  /** The order of rules that were appended one by one is another one. */
  state(): unknown {
    return [4, 6].map((family) =>
      [...this.tables(family as 4 | 6)].map(([table, chains]) => [
        table,
        new Map([...chains].map(([chain, rules]) => [chain, rules.toSorted()])),
      ]),
    );
  }
  damage(pick: number, isEmptied: boolean): void {
    const all = [...this.tables().values()].flatMap((chains) => Array.from(chains.values()));
    const rules = all[pick % all.length] ?? [];
    rules.splice(pick % (rules.length + 1), isEmptied ? Infinity : 1);
  }
}

const nftElement = fc.record({
  // The table of CONFIG has no others.
  set: fc.constantFrom(
    ...KINDS.flatMap((kind) =>
      /^(?:listeners|canary|node-networks)/.test(kind) ? [] : [setName(kind, 4), setName(kind, 6)],
    ),
  ),
  key: fc.constantFrom('10.0.0.1 . tcp . 80', '10.0.0.2 . tcp . 80', 'tcp . 30000'),
  value: fc.constantFrom('', '1', '2'),
});
const iptablesRule = fc.record({
  set: fc.constantFrom(...SLOT_ORDER.flatMap((slot) => [slotName(slot, 4), slotName(slot, 6)])),
  key: fc.constantFrom('-p tcp --dport 1', '-p tcp --dport 2', '-p udp --dport 3'),
  value: fc.constantFrom('1', '2', '-j RETURN'),
});

/** What happens to a write: it succeeds, fails, is left out, or is damaged afterwards, or another process writes everything. */
const WRITES = ['change', 'change', 'change', 'fail', 'none', 'damage', 'take over'] as const;

const stepsOf = (element: fc.Arbitrary<Element>) =>
  fc.array(
    fc.record({
      remove: fc.array(element, { maxLength: 4 }),
      add: fc.array(element, { maxLength: 4 }),
      write: fc.constantFrom(...WRITES),
      pick: fc.nat(40),
      isEmptied: fc.boolean(),
    }),
    { maxLength: 10 },
  );

for (const [name, Kernel, element] of [
  ['nftables', NftKernel, nftElement],
  ['iptables', IptablesKernel, iptablesRule],
] as const) {
  t.test(`${name}: after any steps, the kernel has what a first write would give it`, async (t) => {
    const last = { remove: [], add: [], write: 'change', pick: 0, isEmptied: false } as const;
    await holdsAsync(
      t,
      fc.asyncProperty(stepsOf(element), async (steps) => {
        const kernel: Kernel = new Kernel();
        const elements = new Elements();
        let config = CONFIG;
        let backend = kernel.start();
        await backend.replace(config, elements, false);
        let isKnown = true;
        for (const { remove, add, write, pick, isEmptied } of [...steps, last]) {
          update(elements, remove, add);
          if (write === 'none') continue;
          if (write === 'fail') kernel.broken = { fails: 'exit' };
          if (write === 'take over') {
            backend = kernel.start();
            config = { ...CONFIG, owner: pick.toString(16).padStart(12, '0') };
            await backend.replace(config, elements, false);
            isKnown = true;
          } else {
            const written: Promise<unknown> = isKnown
              ? backend.change(config, elements.changes(), elements)
              : backend.replace(config, elements, true);
            isKnown = await written.then(
              () => true,
              () => false,
            );
            assert.ok(isKnown || write === 'fail');
          }
          kernel.broken = undefined;
          if (!isKnown) continue;
          elements.written();
          if (write !== 'damage') continue;
          kernel.damage(pick, isEmptied);
          await backend.replace(config, elements, true);
        }
        if (!isKnown) await backend.replace(config, elements, true);
        const fresh: Kernel = new Kernel();
        await fresh.start().replace(config, elements, false);
        assert.deepEqual(kernel.state(), fresh.state());
      }),
    );
  });
}
