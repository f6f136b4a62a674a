import t from 'tap';
import { ipSetOf, isMappedIPv4, mergeIPSets, sortedUnique } from '../../src/store/ip-set.ts';

t.test('V21 (kept): addresses by family, sorted as strings, each once', async (t) => {
  t.strictSame(ipSetOf(['1.1.1.2', '1.1.1.4', '1.1.1.3', '1.1.1.1', '1.1.1.2', '::2', '::1']), {
    v4: ['1.1.1.1', '1.1.1.2', '1.1.1.3', '1.1.1.4'],
    v6: ['::1', '::2'],
  });
  t.strictSame(ipSetOf(['10.0.0.9', '10.0.0.10']), { v4: ['10.0.0.10', '10.0.0.9'], v6: [] });
  t.strictSame(ipSetOf(['nope', '10.1', '10.0.0.01', 'fe80::1%eth0', '']), { v4: [], v6: [] });
});

t.test('an IPv4-mapped address counts as IPv4 and keeps its text', async (t) => {
  t.strictSame(ipSetOf(['::ffff:1.2.3.4', '0:0:0:0:0:ffff:102:304']), {
    v4: ['0:0:0:0:0:ffff:102:304', '::ffff:1.2.3.4'],
    v6: [],
  });
  t.equal(isMappedIPv4('::1.2.3.4'), false);
  t.equal(isMappedIPv4('::FFFF:1.2.3.4'), true);
  t.equal(isMappedIPv4('ffff::1'), false);
  t.equal(isMappedIPv4('::ffff:1.2.3.4%eth0'), false);
  t.equal(isMappedIPv4('1.2.3.4'), false);
  t.equal(isMappedIPv4('::ffff:1.2.3.4.5'), false);
});

t.test('sets are merged', async (t) => {
  const a = { v4: ['10.0.0.2'], v6: ['::2'] };
  t.strictSame(mergeIPSets(a, { v4: ['10.0.0.1', '10.0.0.2'], v6: [] }), {
    v4: ['10.0.0.1', '10.0.0.2'],
    v6: ['::2'],
  });
  t.equal(mergeIPSets(a, undefined), a);
  t.equal(mergeIPSets(undefined, a), a);
  t.equal(mergeIPSets(undefined, undefined), undefined);
  t.strictSame(sortedUnique(['b']), ['b']);
});
