import t from 'tap';
import type { KpngError } from '../../../src/errors.ts';
import { portalFailed, portalLost, portalWritten } from '../../../src/portal/events.ts';
import { exits } from '../../support/fake-exec.ts';
import { NODE, NftablesRig } from '../../support/nftables-rig.ts';
import { wants } from '../../support/portals.ts';

const web = wants('d/web', 'clusterIP 10.0.0.1:80', 'nodePort 30080');

/** A rig with one service, and what its portal tells from then on. */
async function written(options: ConstructorParameters<typeof NftablesRig>[0] = {}) {
  const rig = new NftablesRig(options);
  t.teardown(() => rig.portal.close());
  await rig.sync([web]);
  const told: string[] = [];
  const onWritten = ({ reason }: { reason: string }) => told.push(`written: ${reason}`);
  const onFailed = ({ error }: { error: KpngError }) => told.push(`failed: ${error.code}`);
  const onLost = () => told.push('lost');
  portalWritten.subscribe(onWritten);
  portalFailed.subscribe(onFailed);
  portalLost.subscribe(onLost);
  t.teardown(() => {
    portalWritten.unsubscribe(onWritten);
    portalFailed.unsubscribe(onFailed);
    portalLost.unsubscribe(onLost);
  });
  return { rig, told };
}

t.test('rules that somebody else removed come back as they were', async (t) => {
  const { rig, told } = await written();
  const runs = rig.nft.commands.length;
  await rig.look(500);
  t.equal(rig.nft.commands.length, runs, 'as long as all is well, no program is run');
  rig.nft.flush();
  await rig.look(500);
  t.strictSame(told, ['lost', 'written: repair']);
  t.equal(rig.lands('10.0.0.1:80'), 'proxy port 40002');
  t.equal(rig.lands('192.0.2.5:30080'), 'proxy port 40001');
});

t.test('a repair that fails is tried again until it succeeds', async (t) => {
  const { rig, told } = await written();
  rig.nft.flush();
  rig.nft.broken = { fails: 'missing' };
  await rig.look(500);
  t.strictSame(told, ['lost', 'failed: KPNG_PORTAL_TOOL_MISSING']);
  rig.nft.broken = undefined;
  await rig.look(500);
  t.strictSame(told.slice(2), ['written: repair'], 'and the loss is told once');
});

t.test('a change that finds the table gone writes all of it', async (t) => {
  const { rig, told } = await written();
  rig.nft.flush();
  await rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]);
  t.strictSame(told, ['written: repair']);
  t.match(rig.lands('10.0.0.2:5432'), /proxy port/);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

t.test('a change that finds other elements than it wrote puts them right', async (t) => {
  const { rig } = await written();
  rig.nft.table().sets.get('services4')?.delete('10.0.0.1 . tcp . 80');
  await rig.sync([], ['d/web']);
  t.equal(rig.lands('10.0.0.1:80'), 'passed on');
  await rig.sync([web]);
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

t.test(
  'a write that took too long may have been carried out, so all is written anew',
  async (t) => {
    const { rig, told } = await written();
    rig.nft.broken = { fails: 'timeout' };
    await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
      code: 'KPNG_PORTAL_FAILED',
    });
    rig.nft.broken = undefined;
    await rig.portal.commit(new Map());
    t.strictSame(told, ['failed: KPNG_PORTAL_FAILED', 'written: repair']);
    t.match(rig.lands('10.0.0.2:5432'), /proxy port/);
  },
);

t.test(
  'leaves the table to another process, and takes it back when that one has ended',
  async (t) => {
    const { rig, told } = await written();
    let otherOwner = '';
    const second = new NftablesRig({
      exec: rig.nft.exec,
      canary: ({ owner }) => {
        otherOwner = owner;
        return rig.canary.of(owner);
      },
    });
    t.teardown(() => second.portal.close());
    await second.sync([wants('x/x', 'clusterIP 10.9.9.9:80')]);
    told.length = 0;

    await rig.look(500);
    t.strictSame(told, ['lost', 'failed: KPNG_PORTAL_TAKEN']);
    const runs = rig.nft.commands.length;
    for (let n = 0; n < 5; n += 1) await rig.look(500);
    t.equal(rig.nft.commands.length, runs, 'it leaves the table alone');
    await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
      code: 'KPNG_PORTAL_TAKEN',
    });
    t.match(rig.lands('10.9.9.9:80'), /proxy port/);

    rig.canary.dead.add(otherOwner);
    await rig.look(500);
    t.equal(told.at(-1), 'written: start');
    t.match(rig.lands('10.0.0.1:80'), /proxy port/);
    t.match(rig.lands('10.0.0.2:5432'), /proxy port/, 'with what has changed in the meantime');
    t.equal(rig.lands('10.9.9.9:80'), 'passed on');
  },
);

t.test('a change does not touch a table that another process has just taken', async (t) => {
  const { rig } = await written();
  const second = new NftablesRig({ exec: rig.nft.exec });
  t.teardown(() => second.portal.close());
  await second.sync([web]);
  const elements = JSON.stringify([...(rig.nft.table().sets.get('services4') ?? [])]);
  await t.rejects(rig.sync([wants('d/db', 'clusterIP 10.0.0.2:5432')]), {
    code: 'KPNG_PORTAL_TAKEN',
    message: /another process writes the nftables table inet kpng-userspace/,
  });
  t.equal(JSON.stringify([...(rig.nft.table().sets.get('services4') ?? [])]), elements);
});

t.test(
  'service ports that the kernel does not take are left out, and the others served',
  async (t) => {
    const { rig, told } = await written();
    rig.nft.refuses = (element) => element.startsWith('10.0.0.66');
    const services = Array.from({ length: 40 }, (_, n) =>
      wants(`d/s${n}`, `clusterIP 10.0.1.${n}:80`),
    );
    await rig.sync([
      ...services,
      wants('d/bad', 'clusterIP 10.0.0.66:80', 'clusterIP 10.0.0.67:80'),
    ]);
    t.strictSame(told, ['failed: KPNG_PORTAL_UNSUPPORTED', 'written: repair']);
    t.match(rig.lands('10.0.0.1:80'), /proxy port/, 'what was there');
    for (const n of [0, 17, 39]) t.match(rig.lands(`10.0.1.${n}:80`), /proxy port/);
    t.equal(rig.lands('10.0.0.67:80'), 'passed on', 'none of its portals is there');
    const { problems } = rig.portal.plan([], []);
    t.match(problems, [
      { servicePort: 'd/bad', message: /d\/bad is left out, and tried again later/ },
    ]);

    const runs = rig.nft.commands.length;
    await rig.sync([wants('d/more', 'clusterIP 10.0.2.1:80')]);
    t.equal(rig.nft.commands.length, runs + 1, 'the next change is an ordinary one');

    rig.nft.refuses = () => false;
    await rig.look(31_000);
    t.match(rig.lands('10.0.0.66:80'), /proxy port/, 'tried again after a while');
    t.strictSame(rig.portal.plan([], []).problems, []);
  },
);

t.test('when the kernel takes not even the rules, no service is blamed', async (t) => {
  const rig = new NftablesRig();
  t.teardown(() => rig.portal.close());
  rig.nft.broken = exits(
    '/dev/stdin:9:1-5: Error: Could not process rule: No such file or directory\n',
  );
  await t.rejects(rig.sync([web]), {
    code: 'KPNG_PORTAL_UNSUPPORTED',
    message: /No such file or directory.*even the rules without any service/s,
  });
  t.strictSame(rig.portal.plan([], []).problems, []);
  rig.nft.broken = undefined;
  await rig.portal.commit(new Map());
  t.match(rig.lands('10.0.0.1:80'), /proxy port/);
});

t.test('the rules follow the addresses of the host', async (t) => {
  const { rig, told } = await written({ nodePortAddresses: ['primary'] });
  const at = (address: string) =>
    NODE.map((each) => (each.loopback || each.address.includes(':') ? each : { ...each, address }));
  t.match(rig.lands('192.0.2.5:30080'), /proxy port/);
  rig.host = [...NODE, { address: '192.0.2.6', loopback: false }];
  await rig.look(2500);
  t.strictSame(told, [], 'a further address changes nothing');
  rig.host = at('192.0.2.6');
  await rig.look(2500);
  t.strictSame(told, ['written: repair']);
  t.match(rig.nft.scripts.at(-1), 'dnat ip to 192.0.2.6 :');
  t.match(rig.lands('192.0.2.6:30080'), /proxy port/);
});
