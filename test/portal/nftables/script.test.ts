import t from 'tap';
import { readTable } from '../../../src/portal/nftables/listing.ts';
import { renderFull, renderTable } from '../../../src/portal/nftables/table.ts';
import { Elements, type RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf, isGolden } from '../../support/portals.ts';
import { CONFIG as DUAL } from '../../support/rule-rigs.ts';

const TABLE = 'kpng-userspace';
const CONFIG: RuleConfig = {
  ...DUAL,
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['fd00::/8', '2001:db8::/32'] },
};

t.test('the rules, and those that deliver packets unchanged', (t) => {
  const elements = elementsOf(
    { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '40001' },
    { set: 'services4', key: '203.0.113.7 . tcp . 443', value: '40002' },
    { set: 'allowed4', key: '203.0.113.7 . tcp . 443 . 198.51.100.0/24', value: '' },
  );
  // The kernel would refuse rules and elements of sets that are declared wrongly.
  const withoutSets = (text: string): string =>
    text.replaceAll(/^\t(?:set|map) .*\n.*\n\t\}\n\n?/gm, '');
  const full = renderFull(TABLE, { ...CONFIG, families: [4] }, elements);
  isGolden(t, withoutSets(full), 'nftables/golden/full.nft');
  const route = { mark: 0x40, table: 10_040, priority: 40, notrack: true };
  const transparent = renderFull(TABLE, { ...CONFIG, families: [6], route }, new Elements());
  isGolden(t, withoutSets(transparent), 'nftables/golden/transparent.nft');
  t.end();
});

t.test('both families have the same rules', async (t) => {
  const route = { mark: 0x40, table: 10_040, priority: 40 };
  for (const each of [{}, { route }, { route: { ...route, notrack: true } }]) {
    const lines = (families: RuleConfig['families']): ReadonlySet<string> =>
      new Set(renderFull(TABLE, { ...DUAL, ...each, families }, new Elements()).split('\n'));
    t.strictSame(lines([4, 6]), new Set([...lines([4]), ...lines([6])]));
    t.equal(lines([4]).size, lines([6]).size);
  }
});

t.test('networks of one address are listed without their length', async (t) => {
  const config: RuleConfig = { ...CONFIG, families: [4], nodePortNetworks: { 4: [], 6: [] } };
  const key = '10.0.0.1 . tcp . 80 . 10.1.2.3';
  const elements = elementsOf(
    ...['allowed4', 'pods4'].map((set) => ({ set, key: `${key}/32`, value: '' })),
    { set: 'node-port-pods4', key: 'tcp . 30080 . 10.1.2.3/32', value: '' },
  );
  const written = renderTable(TABLE, config);
  const listed = written
    .replace(/set (?:allowed|pods)4 \{\n.*/g, `$&\n\t\telements = { ${key} }`)
    .replace(/set node-port-pods4 \{\n.*/, '$&\n\t\telements = { tcp . 30080 . 10.1.2.3 }');
  t.equal((await readTable(listed, config, elements)).difference, undefined);
  t.match((await readTable(written, config, elements)).difference, /lacks/);
});
