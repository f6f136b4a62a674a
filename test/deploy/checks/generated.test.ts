/** `npm test` compares only a digest of the generated files; here they are generated again. */
import t from 'tap';
import { drift } from '../../../src/api/proto/generate.ts';

t.test('the generated files are what the .proto files say', async (t) => {
  t.strictSame(await drift(), [], 'run "npm run generate"');
});
