import t from 'tap';
import { isOlder } from '../../src/kube/meta.ts';

t.test('numbers are compared as such, whatever their length; anything else is in no order', (t) => {
  t.ok(isOlder('9', '10'));
  t.ok(isOlder('9007199254740992', '9007199254740993'));
  t.notOk(isOlder('10', '9'));
  t.notOk(isOlder('10', '10'));
  for (const odd of ['', 'abc', '1a', '-1']) {
    t.notOk(isOlder(odd, '10'));
    t.notOk(isOlder('1', odd));
  }
  t.end();
});
