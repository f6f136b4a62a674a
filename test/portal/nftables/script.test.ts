import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { readTable } from '../../../src/portal/nftables/listing.ts';
import { renderFull, renderTable } from '../../../src/portal/nftables/table.ts';
import { Elements, type RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf } from '../../support/portals.ts';
import { CONFIG as DUAL } from '../../support/rule-rigs.ts';

const TABLE = 'kpng-userspace';
const CONFIG: RuleConfig = {
  ...DUAL,
  nodePortNetworks: { 4: ['0.0.0.0/0'], 6: ['fd00::/8', '2001:db8::/32'] },
};

/** Compares the chains and elements with a file, and the sets, which come before them, with `sets`: `map a: type`. */
function isGolden(t: Test, text: string, name: string, sets: readonly string[]): void {
  const file = readFileSync(join(import.meta.dirname, 'golden', name), 'utf8');
  const block = /^\t(map|set) (\S+) \{\n\t\ttype (.+)\n\t\}\n\n/gm;
  t.equal(text.replaceAll(block, ''), file);
  const found = Array.from(text.matchAll(block), ([, word, set, type]) => {
    const short = type?.replaceAll(/ipv[46]_addr/g, 'address');
    return `${word} ${set}: ${short?.replaceAll('inet_proto . inet_service', 'port')}`;
  });
  t.strictSame(found, sets);
}

t.test('the whole table', (t) => {
  const ledger = elementsOf(
    { set: 'services4', key: '10.0.0.1 . tcp . 80', value: '40001' },
    { set: 'services4', key: '203.0.113.7 . tcp . 443', value: '40002' },
    { set: 'allowed4', key: '203.0.113.7 . tcp . 443 . 198.51.100.0/24', value: '' },
  );
  const config: RuleConfig = { ...CONFIG, families: [4] };
  isGolden(t, renderFull(TABLE, config, ledger), 'full.nft', [
    'map services4: address . port : inet_service;',
    'set empty4: address . port;',
    'set guarded4: address . port;',
    'set allowed4: address . port . address; flags interval;',
    'set no-local4: address . port;',
    'set pods4: address . port . address; flags interval;',
    'map node-ports4: port : inet_service;',
    'set empty-node-ports4: port;',
    'set no-local-node-ports4: port;',
    'set node-port-pods4: port . address; flags interval;',
    'set proxy-ports4: port;',
    'set node-networks4: address; flags interval;',
  ]);
  t.end();
});

t.test('a table that delivers packets unchanged', (t) => {
  const route = { mark: 0x40, table: 10_040, priority: 40, notrack: true };
  const config: RuleConfig = { ...CONFIG, families: [6], route };
  isGolden(t, renderFull(TABLE, config, new Elements()), 'transparent.nft', [
    'set services6: address . port;',
    'set empty6: address . port;',
    'set guarded6: address . port;',
    'set allowed6: address . port . address; flags interval;',
    'set no-local6: address . port;',
    'set pods6: address . port . address; flags interval;',
    'set node-ports6: port;',
    'set empty-node-ports6: port;',
    'set no-local-node-ports6: port;',
    'set node-port-pods6: port . address; flags interval;',
    'set node-networks6: address; flags interval;',
    'map listeners6: inet_proto : inet_service;',
    'map canary6: address . port : inet_service;',
  ]);
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
