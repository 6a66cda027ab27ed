/** What an image is made for; without a variant any will do. */
export interface Platform {
  os: string;
  architecture: string;
  variant: string | undefined;
}

/** The platform that `text` writes (`linux/amd64`, `linux/arm/v7`), or undefined when it writes none. */
export function parsePlatform(text: string): Platform | undefined {
  const match = /^([a-z0-9]+)\/([a-z0-9_]+)(?:\/([a-z0-9.]+))?$/.exec(text.trim().toLowerCase());
  return match ? { os: match[1]!, architecture: match[2]!, variant: match[3] } : undefined;
}

/** As `parsePlatform` reads it. */
export function platformText({ os, architecture, variant }: Platform): string {
  return variant === undefined ? `${os}/${architecture}` : `${os}/${architecture}/${variant}`;
}

/** Whether something made for `actual` is what was `wanted`. Of arm64 there is one variant, often left unsaid. */
export function isPlatform(actual: Platform, wanted: Platform): boolean {
  if (actual.os !== wanted.os || actual.architecture !== wanted.architecture) return false;
  const usual = wanted.architecture === 'arm64' ? 'v8' : undefined;
  return wanted.variant === undefined || (actual.variant ?? usual) === wanted.variant;
}
