import t from 'tap';
import { sourceRangeInvalid } from '../../src/proxysocket/events.ts';
import { sourceFilter } from '../../src/proxysocket/core/listener.ts';
import { collect } from '../support/sockets.ts';

t.test('no ranges: no filter', (t) => {
  t.equal(sourceFilter('a', undefined), undefined);
  t.equal(sourceFilter('a', []), undefined);
  t.end();
});

t.test('clients inside one of the ranges may come in', (t) => {
  const allows = sourceFilter('a', ['10.1.2.3/8', ' 192.0.2.7/32 ', 'fd00::/8']);
  const verdicts = ['10.255.0.1', '11.0.0.1', '192.0.2.7', '192.0.2.8', 'fd12::1', 'fe80::1', ''];
  t.same(
    verdicts.map((client) => allows?.(client)),
    [true, false, true, false, true, false, false],
  );
  t.end();
});

t.test('a prefix of 0 is everybody of the family', (t) => {
  const four = sourceFilter('a', ['0.0.0.0/0']);
  t.same([four?.('203.0.113.9'), four?.('2001:db8::1')], [true, false]);
  const six = sourceFilter('a', ['::/0']);
  t.same([six?.('203.0.113.9'), six?.('2001:db8::1')], [false, true]);
  t.end();
});

t.test('what cannot be read lets nobody in, and is told', (t) => {
  const invalid = collect(t, sourceRangeInvalid);
  const ranges = ['10.0.0.0/33', '10.0.0/8', 'fd00::/129', '10.0.0.1', 'x/8', '', '10.0.0.0/8/8'];
  const allows = sourceFilter('ns/s:p', ranges);
  t.equal(allows?.('10.0.0.1'), false);
  t.same(
    invalid.map(({ range }) => range),
    ranges,
  );
  t.equal(invalid[0]?.servicePort, 'ns/s:p');
  t.end();
});
