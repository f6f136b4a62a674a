import * as fc from 'fast-check';
import t from 'tap';
import { isDeepStrictEqual } from 'node:util';
import { isEqual } from '../../src/util/equal.ts';
import { holds } from '../support/property.ts';

t.test('plain data is equal as for Node', async (t) => {
  const leaf = fc.constantFrom<unknown>(0, -0, 1, 1n, Number.NaN, '', 'a', null, undefined, true);
  const { data } = fc.letrec<{ data: unknown }>((tie) => ({
    data: fc.oneof(
      { depthSize: 'small' },
      leaf,
      fc.array(tie('data'), { maxLength: 3 }),
      fc.dictionary(fc.constantFrom('a', 'b', '0'), tie('data'), { noNullPrototype: true }),
    ),
  }));
  holds(
    t,
    fc.property(data, data, (a, b) => {
      const copy = structuredClone(a);
      return isEqual(a, b) === isDeepStrictEqual(a, b) && isEqual(a, copy);
    }),
  );
});
