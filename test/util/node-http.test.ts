import { execFileSync } from 'node:child_process';
import t from 'tap';

const SERVER = import.meta.resolve('../../src/util/http-server.ts');

t.test('a server does not load the HTTP client of 15 MB', async (t) => {
  const script = `await import(${JSON.stringify(SERVER)}); console.log(process.moduleLoadList.join('\\n'))`;
  const loaded = execFileSync(process.execPath, ['--input-type=module', '-e', script]).toString();
  t.match(loaded, /NativeModule _http_server/);
  t.notMatch(loaded, /undici/);
});
