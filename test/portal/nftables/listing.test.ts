import t from 'tap';
import { differenceIn } from '../../../src/portal/nftables/listing.ts';
import { renderTable, type SetName } from '../../../src/portal/nftables/table.ts';
import { ItemMap, type RuleConfig } from '../../../src/portal/rules/items.ts';

const CONFIG: RuleConfig = {
  owner: '0123456789ab',
  families: [4],
  targets: { 4: '192.0.2.5', 6: undefined },
  nodePortNetworks: { 4: [], 6: [] },
};

t.test('networks of one address are listed without their length', async (t) => {
  const items = new ItemMap<SetName>();
  const key = '10.0.0.1 . tcp . 80 . 10.1.2.3';
  for (const set of ['allowed4', 'pods4'] as const) {
    items.update([], [{ set, key: `${key}/32`, value: '' }]);
  }
  items.update([], [{ set: 'node-port-pods4', key: 'tcp . 30080 . 10.1.2.3/32', value: '' }]);
  const written = renderTable('kpng-userspace', CONFIG);
  const listed = written
    .replace(/set (?:allowed|pods)4 \{/g, `$&\n\t\telements = { ${key} }`)
    .replace('set node-port-pods4 {', '$&\n\t\telements = { tcp . 30080 . 10.1.2.3 }');
  t.equal(await differenceIn(listed, CONFIG, items), undefined);
  t.match(await differenceIn(written, CONFIG, items), /entries of .* are missing/);
});
