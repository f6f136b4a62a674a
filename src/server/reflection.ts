import { ReflectionService } from '@grpc/reflection';
import { FILE_DESCRIPTORS } from '../api/generated/descriptors.ts';
import type { ServiceTarget } from './shares.ts';

type PackageDefinition = ConstructorParameters<typeof ReflectionService>[0];

/**
 * Adds gRPC's reflection service to a server, so that tools such as grpcurl know the messages of these APIs and of
 * the health service.
 */
export function addReflection(server: ServiceTarget, services: readonly string[]): void {
  const fileDescriptorProtos = FILE_DESCRIPTORS.map((text) => Buffer.from(text, 'base64'));
  // The reflection service only reads the descriptors of a definition.
  const definition = { files: { fileDescriptorProtos } } as unknown as PackageDefinition;
  const listed = [...services, 'grpc.health.v1.Health'];
  new ReflectionService(definition, { services: listed }).addToServer(server);
}
