import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import t from 'tap';
import * as fc from 'fast-check';
import { readTable } from '../../../src/portal/nftables/listing.ts';
import {
  elementsBySet,
  renderDelta,
  renderFull,
  renderMended,
  renderRemoval,
  SET_NAMES,
} from '../../../src/portal/nftables/table.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import { type Element, Elements } from '../../../src/portal/rules/elements.ts';
import { elementsOf, update } from '../../support/portals.ts';
import { FakeNft } from '../../support/fake-nft.ts';
import { holdsAsync } from '../../support/property.ts';

const TABLE = 'kpng-userspace';
const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4, 6],
  targets: { 4: '192.0.2.5', 6: '2001:db8::5' },
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['fd00::/8', '2001:db8::/32'] },
};

function golden(name: string): string {
  return readFileSync(join(import.meta.dirname, 'golden', name), 'utf8');
}

t.test('the whole table', (t) => {
  const ledger = elementsOf(
    { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '40001' },
    { set: 'services4', key: '203.0.113.7 . tcp . 443', value: '40002' },
    { set: 'guarded4', key: '203.0.113.7 . tcp . 443', value: '' },
    { set: 'allowed4', key: '203.0.113.7 . tcp . 443 . 198.51.100.0/24', value: '' },
    { set: 'empty4', key: '10.0.0.2 . udp . 53', value: '' },
    { set: 'no-local4', key: '10.0.0.3 . tcp . 80', value: '' },
    { set: 'pods4', key: '10.0.0.3 . tcp . 80 . 10.1.0.0/16', value: '' },
    { set: 'node-ports4', key: 'tcp . 30080', value: '40003' },
    { set: 'no-local-node-ports4', key: 'tcp . 30081', value: '' },
    { set: 'node-port-pods4', key: 'tcp . 30081 . 10.1.0.0/16', value: '' },
  );
  const config: RuleConfig = { ...CONFIG, families: [4] };
  t.equal(renderFull(TABLE, config, ledger), golden('full.nft'));
  t.end();
});

t.test('a table that delivers packets unchanged', (t) => {
  const route = { mark: 0x40, table: 10_040, priority: 40, notrack: true };
  const config: RuleConfig = { ...CONFIG, families: [6], route };
  const ledger = elementsOf(
    { set: 'services6', key: 'fd00::1 . tcp . 80', value: '' },
    { set: 'node-ports6', key: 'tcp . 30080', value: '' },
    { set: 'listeners6', key: 'tcp', value: '40001' },
    { set: 'canary6', key: '::1 . tcp . 20000', value: '40002' },
  );
  t.equal(renderFull(TABLE, config, ledger), golden('transparent.nft'));
  t.end();
});

t.test('both families have the same rules', async (t) => {
  const route = { mark: 0x40, table: 10_040, priority: 40 };
  const nodePortNetworks = { 4: ['0.0.0.0/0'], 6: ['::/0'] };
  for (const each of [{}, { route }, { route: { ...route, notrack: true } }]) {
    const more = { ...each, nodePortNetworks };
    const lines = (families: RuleConfig['families']): ReadonlySet<string> =>
      new Set(renderFull(TABLE, { ...CONFIG, ...more, families }, new Elements()).split('\n'));
    t.strictSame(lines([4, 6]), new Set([...lines([4]), ...lines([6])]));
    t.equal(lines([4]).size, lines([6]).size);
  }
});

t.test('differences: removals first, and only in our own table', (t) => {
  const ledger = elementsOf(
    { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '40001' },
    { set: 'services4', key: '10.0.0.2 . tcp . 80', value: '40002' },
    { set: 'empty4', key: '10.0.0.3 . tcp . 80', value: '' },
  );
  ledger.written();
  update(
    ledger,
    [
      { set: 'services4', key: '10.0.0.2 . tcp . 80', value: '40002' },
      { set: 'empty4', key: '10.0.0.3 . tcp . 80', value: '' },
    ],
    [
      { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '40009' },
      { set: 'services4', key: '10.0.0.3 . tcp . 80', value: '40003' },
    ],
  );
  t.equal(renderDelta(TABLE, CONFIG.owner, ledger.changes()), golden('delta.nft'));
  t.end();
});

t.test('the removal of the table is no error when there is none', async (t) => {
  const nft = new FakeNft();
  await nft.exec({ file: 'nft', args: ['-f', '-'], stdin: renderRemoval('x') });
  t.equal(nft.tables.size, 0);
});

t.test('an element that is removed and added in one update is no change', (t) => {
  const ledger = new Elements();
  const element: Element = { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '1' };
  update(ledger, [], [element]);
  ledger.written();
  update(ledger, [element], [element]);
  t.strictSame(ledger.changes(), []);
  update(ledger, [element], []);
  update(ledger, [], [element]);
  t.strictSame(ledger.changes(), [], 'nor in two');
  t.end();
});

const element = fc.record({
  // The table of CONFIG has no others.
  set: fc.constantFrom(
    ...SET_NAMES.filter((set) => !/^(?:listeners|canary|node-networks)/.test(set)),
  ),
  key: fc.constantFrom('10.0.0.1 . tcp . 80', '10.0.0.2 . tcp . 80', 'tcp . 30000'),
  value: fc.constantFrom('', '1', '2'),
});
const step = fc.record({
  remove: fc.array(element, { maxLength: 4 }),
  add: fc.array(element, { maxLength: 4 }),
  /** What becomes of the write: done, failed, or everything is written, over what is there or from nothing. */
  write: fc.constantFrom('change', 'change', 'change', 'fail', 'none', 'mend', 'full'),
});

t.test('after any steps, the table has the desired elements', async (t) => {
  await holdsAsync(
    t,
    fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
      const nft = new FakeNft();
      const ledger = new Elements();
      const run = (stdin: string) => nft.exec({ file: 'nft', args: ['-f', '-'], stdin });
      await run(renderFull(TABLE, CONFIG, ledger));
      for (const { remove, add, write } of [...steps, { remove: [], add: [], write: 'change' }]) {
        update(ledger, remove, add);
        if (write === 'none') continue;
        const changes = ledger.changes();
        let script = renderDelta(TABLE, CONFIG.owner, changes);
        if (write === 'full') script = renderFull(TABLE, CONFIG, ledger);
        if (write === 'mend') {
          const { stdout } = await nft.exec({
            file: 'nft',
            args: ['list', 'table', 'inet', TABLE],
          });
          const { changes: some } = await readTable(stdout, CONFIG, ledger);
          script = renderMended(TABLE, CONFIG, [], some);
        }
        if (write === 'fail') nft.broken = { fails: 'exit' };
        const done = await run(script).then(
          () => true,
          () => false,
        );
        nft.broken = undefined;
        if (done !== (write !== 'fail')) return false;
        if (done) ledger.written();
      }
      return SET_NAMES.every((set) => {
        const there = nft.table().sets.get(set) ?? new Map();
        const wanted = (elementsBySet(CONFIG, ledger).get(set) ?? []).map(
          ({ key, value }) => [key, value] as const,
        );
        return isDeepStrictEqual(new Map(there), new Map(wanted));
      });
    }),
  );
});
