import { X509Certificate } from 'node:crypto';
import type { Clock } from '../util/clock.ts';
import { LISTEN_TLS_FLAGS, type TlsFiles, type TlsMaterial } from '../util/tls-files.ts';
import { followTls } from '../util/tls-follow.ts';
import { tlsFilesChanged } from './events.ts';
import type { ApiServer } from './server.ts';

/**
 * Reloads and reports changed TLS files, for new connections. Invalid files change nothing. Returns a function that
 * ends this.
 */
export function followTlsFiles(
  server: Pick<ApiServer, 'replaceTls'>,
  files: TlsFiles,
  material: TlsMaterial,
  clock?: Clock,
): () => void {
  return followTls({
    files,
    flags: LISTEN_TLS_FLAGS,
    material,
    clock,
    onChanged(material) {
      server.replaceTls(material);
      if (!tlsFilesChanged.hasSubscribers) return;
      tlsFilesChanged.publish({ error: undefined, validUntil: validUntil(material) });
    },
    onFailed(error) {
      if (tlsFilesChanged.hasSubscribers) tlsFilesChanged.publish({ error, validUntil: undefined });
    },
  });
}

function validUntil({ identity }: TlsMaterial): number | undefined {
  if (identity === undefined) return undefined;
  return Date.parse(new X509Certificate(identity.crt).validTo);
}
