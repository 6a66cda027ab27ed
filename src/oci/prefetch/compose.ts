import { isMap, isScalar } from 'yaml';
import { parsePlatform } from '../../prefetch/platform.ts';
import { parseImageName } from './image-name.ts';
import { substitute } from './substitute.ts';
import { malformed, firstLine, type Input } from '../../prefetch/item.ts';
import type { OciItem } from './image-item.ts';
import { YamlInput } from './yaml-input.ts';

/** The images in a Compose file, without those that a service builds. https://docs.docker.com/reference/compose-file/ */
export function readCompose({ file, text, values }: Input): OciItem[] {
  const yaml = new YamlInput(file, text);
  const items: OciItem[] = [];
  for (const document of yaml.documents) {
    const root: unknown = document.contents;
    if (isScalar(root) && root.value === null) continue;
    if (!isMap(root)) throw malformed(file, yaml.lineOf(root), 'expected keys such as "services"');
    const services = yaml.field(document, root, 'services');
    if (services === undefined) continue;
    if (!isMap(services)) throw malformed(file, yaml.lineOf(services ?? root), '"services" must be a mapping');
    for (const { key, value } of services.items) {
      const name = String(isScalar(key) ? key.value : key);
      const service = yaml.resolve(document, value);
      if (!isMap(service)) throw malformed(file, yaml.lineOf(key), `the service ${firstLine(name)} must be a mapping`);
      const field = (each: string) => yaml.field(document, service, each);
      const image = field('image');
      if (image === undefined || field('build') !== undefined) continue;
      const platform = field('platform');
      const line = yaml.lineOf(service.items.some((pair) => pair.value === image) ? image : key);
      const read = (each: unknown, what: string): string => {
        if (isScalar(each) && typeof each.value === 'string') return each.value;
        throw malformed(file, line, `the ${what} of the service ${firstLine(name)} must be text`);
      };
      items.push(
        readImage(
          { file, line },
          read(image, 'image'),
          values,
          platform === undefined ? undefined : read(platform, 'platform'),
        ),
      );
    }
  }
  return items;
}

/** The item for an image whose name may have variables. */
function readImage(
  location: OciItem['location'],
  text: string,
  values: ReadonlyMap<string, string>,
  platform: string | undefined,
): OciItem {
  const lookup = (name: string) => values.get(name);
  const name = substitute(text.trim(), lookup);
  if (name.reason !== undefined) return { location, kind: 'unclear', what: text, reason: name.reason };
  const image = parseImageName(name.value);
  if (!image) throw malformed(location.file, location.line, `${firstLine(name.value)} is not an image name`);
  if (platform === undefined) return { location, kind: 'image', image };
  const { value, reason } = substitute(platform, lookup);
  if (reason !== undefined) return { location, kind: 'unclear', what: text, reason };
  const parsed = parsePlatform(value);
  if (!parsed)
    throw malformed(location.file, location.line, `${firstLine(value)} is not a platform such as linux/amd64`);
  return { location, kind: 'image', image, platforms: [parsed] };
}
