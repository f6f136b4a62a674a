import t from 'tap';
import { readTable } from '../../../src/portal/nftables/listing.ts';
import { renderTable } from '../../../src/portal/nftables/table.ts';
import type { RuleConfig } from '../../../src/portal/rules/backend.ts';
import { elementsOf } from '../../support/portals.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4],
  targets: { 4: '192.0.2.5', 6: undefined },
  nodePortNetworks: { 4: [], 6: [] },
};

t.test('networks of one address are listed without their length', async (t) => {
  const key = '10.0.0.1 . tcp . 80 . 10.1.2.3';
  const elements = elementsOf(
    ...['allowed4', 'pods4'].map((set) => ({ set, key: `${key}/32`, value: '' })),
    { set: 'node-port-pods4', key: 'tcp . 30080 . 10.1.2.3/32', value: '' },
  );
  const written = renderTable('kpng-userspace', CONFIG);
  const listed = written
    .replace(/set (?:allowed|pods)4 \{\n.*/g, `$&\n\t\telements = { ${key} }`)
    .replace(/set node-port-pods4 \{\n.*/, '$&\n\t\telements = { tcp . 30080 . 10.1.2.3 }');
  t.equal((await readTable(listed, CONFIG, elements)).difference, undefined);
  t.match((await readTable(written, CONFIG, elements)).difference, /lacks/);
});
