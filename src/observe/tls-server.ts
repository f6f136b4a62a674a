import { createServer, type Server } from 'node:https';
import type { KpngError } from '../errors.ts';
import type { Clock } from '../util/clock.ts';
import { readTls, type TlsFiles, type TlsFlags, type TlsMaterial } from '../util/tls-files.ts';
import { followTls } from '../util/tls-follow.ts';
import type { CreateServer } from '../util/http-server.ts';

export interface TlsServerOptions {
  readonly files: TlsFiles;
  readonly flags: TlsFlags;
  readonly clock: Clock;
  /** New files are in use from now on. */
  readonly onChanged: () => void;
  /** New files cannot be used; the previous ones stay. */
  readonly onFailed: (error: KpngError) => void;
}

/** Makes HTTPS servers, and reloads their files when they change. */
export interface TlsServers {
  readonly create: CreateServer;
  close(): void;
}

/** A client that does not get done with its handshake is cut after this long. Milliseconds. */
const HANDSHAKE_TIMEOUT_MS = 5000;

/** Reads certificate and key; rejects with KPNG_TLS_FILE. Undefined: none are named, so there is no TLS. */
export async function tlsServers(options: TlsServerOptions): Promise<TlsServers | undefined> {
  const { files, flags, clock, onChanged, onFailed } = options;
  const read = await readTls(files, flags);
  if (read === undefined) return undefined;
  let material = read;
  let server: Server | undefined;
  const end = followTls({
    files,
    flags,
    material,
    clock,
    onChanged(latter) {
      material = latter;
      server?.setSecureContext(contextOf(material));
      onChanged();
    },
    onFailed,
  });
  return {
    create(times, listener) {
      const settings = { ...times, handshakeTimeout: HANDSHAKE_TIMEOUT_MS };
      server = createServer({ ...settings, ...contextOf(material) }, listener);
      return server;
    },
    close: end,
  };
}

function contextOf({ identity }: TlsMaterial) {
  return { key: identity?.key, cert: identity?.crt, minVersion: 'TLSv1.2' } as const;
}
