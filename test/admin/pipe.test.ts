/** The admin API over a named pipe of Windows. */
import t from 'tap';
import { callAdmin } from '../../src/admin/client.ts';
import { checkDirectory } from '../../src/admin/socket-path.ts';
import { AdminScene } from '../support/admin-scene.ts';

const windows = { skip: process.platform === 'win32' ? false : 'only on windows' };

t.test('what runs is shown, and changed', windows, async (t) => {
  const socket = String.raw`\\.\pipe\kpng-test-${process.pid}`;
  const scene = new AdminScene([
    { name: 'ns/web', address: '10.0.0.1', endpoints: ['10.1.0.1:80'] },
  ]);
  await scene.serve(t, socket);
  const status = await callAdmin({ socket, method: 'GET', operation: 'status', input: {} });
  t.match(status, { process: { pid: process.pid } });
  await callAdmin({ socket, method: 'POST', operation: 'drain', input: { service: 'ns/web' } });
  t.ok(scene.proxier.drains.isDrained('ns/web'));
});

t.test('a path in a directory is refused on Windows, which has none of these', async (t) => {
  await t.rejects(checkDirectory(String.raw`C:\k\a.sock`, undefined, 'win32'), {
    code: 'KPNG_ADMIN_SOCKET',
    message: String.raw`no admin socket at C:\k\a.sock: on Windows it is a named pipe, such as \\.\pipe\NAME`,
  });
});
