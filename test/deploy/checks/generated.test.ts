/** `npm test` compares only a digest of the generated files; here they are generated again. */
import t from 'tap';
import { drift } from '../../../tools/generate/main.ts';

t.test('the generated files are what the .proto files say', async (t) => {
  t.strictSame(await drift(), [], 'run "npm run generate"');
});
