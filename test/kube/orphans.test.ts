import * as fc from 'fast-check';
import t from 'tap';
import { OrphanBook } from '../../src/kube/orphans.ts';
import { holds } from '../support/property.ts';

t.test('slices whose service is not there', (t) => {
  const book = new OrphanBook();
  t.strictSame(book.summary(), { count: 0, example: undefined });
  book.setSlice('d/web-1', 'd/web');
  t.strictSame(book.summary(), { count: 1, example: { slice: 'd/web-1', service: 'd/web' } });
  book.setService('d/web', true);
  t.equal(book.summary().count, 0);
  book.setSlice('d/web-2', 'd/web');
  book.setService('d/web', false);
  t.equal(book.summary().count, 2);
  book.setSlice('d/web-1', undefined);
  book.setSlice('d/web-2', 'd/api');
  t.strictSame(book.summary(), { count: 1, example: { slice: 'd/web-2', service: 'd/api' } });
  t.end();
});

t.test('whatever comes, the count is right', (t) => {
  const name = fc.constantFrom('a', 'b', 'c');
  const step = fc.oneof(
    fc.record({ service: name, present: fc.boolean() }),
    fc.record({
      slice: fc.constantFrom('1', '2', '3', '4'),
      of: fc.option(name, { nil: undefined }),
    }),
  );
  holds(
    t,
    fc.property(fc.array(step), (steps) => {
      const book = new OrphanBook();
      const services = new Set<string>();
      const slices = new Map<string, string>();
      for (const each of steps) {
        if ('present' in each) {
          book.setService(each.service, each.present);
          if (each.present) services.add(each.service);
          else services.delete(each.service);
        } else {
          book.setSlice(each.slice, each.of);
          if (each.of === undefined) slices.delete(each.slice);
          else slices.set(each.slice, each.of);
        }
      }
      const orphans = [...slices].filter(([, service]) => !services.has(service));
      const { count, example } = book.summary();
      const isOne = orphans.some(
        ([slice, of]) => slice === example?.slice && of === example.service,
      );
      return count === orphans.length && (count === 0 || isOne);
    }),
  );
  t.end();
});
