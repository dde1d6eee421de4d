// Memory for arrays of numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

// The address sanitizer sees only what `malloc` gives.
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define MTKIT_LARGE_PAGES
#include <sys/mman.h>
#endif

namespace mtkit {

// A large page of memory: reading a large matrix is faster with few, large pages.
constexpr size_t LARGE_PAGE = size_t{1} << 21;

#ifdef MTKIT_LARGE_PAGES
// Zeros in whole large pages, from the system, which gets them back when they are freed. `malloc`
// would keep what the largest batch of each thread needed for as long as the program lives.
inline void* allocate_large(size_t bytes) {
    void* const mapped = mmap(nullptr, bytes + LARGE_PAGE, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    // It begins at a large page; the rest is returned.
    char* const all = static_cast<char*>(mapped);
    const size_t before = -reinterpret_cast<uintptr_t>(all) % LARGE_PAGE;
    if (before > 0) munmap(all, before);
    munmap(all + before + bytes, LARGE_PAGE - before);
    madvise(all + before, bytes, MADV_HUGEPAGE);
    return all + before;
}
inline void free_large(void* data, size_t bytes) { munmap(data, bytes); }
#else
inline void* allocate_large(size_t bytes) {
    void* const data = std::aligned_alloc(LARGE_PAGE, bytes);
    return data == nullptr ? data : std::memset(data, 0, bytes);
}
inline void free_large(void* data, size_t) { std::free(data); }
#endif

// An array that begins at a cache line. It can be moved, not copied; one that was moved is not used
// again.
template <class T>
class Array {
public:
    // Numbers that are not set; what was in it is lost.
    void allocate(size_t size) {
        data_.reset();
        size_ = 0;
        if (size == 0) return;
        if (size > (SIZE_MAX - 2 * LARGE_PAGE) / sizeof(T)) throw std::bad_alloc();
        size_t bytes = in_units(size * sizeof(T), 64);
        const bool is_large = bytes >= LARGE_PAGE;
        if (is_large) bytes = in_units(bytes, LARGE_PAGE);
        void* const data = is_large ? allocate_large(bytes) : std::aligned_alloc(64, bytes);
        if (data == nullptr) throw std::bad_alloc();
        data_ = {static_cast<T*>(data), Free{bytes}};
        size_ = size;
    }
    // New zeros.
    void resize(size_t size) {
        allocate(size);
        const size_t bytes = data_.get_deleter().bytes;
        if (size > 0 && bytes < LARGE_PAGE) std::memset(data(), 0, bytes);
    }
    // Room for at least `size` numbers, for a buffer that is used again: zeros, or what was there.
    T* room(size_t size) {
        if (size > size_) resize(size + size / 4);
        return data();
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    T& operator[](size_t i) { return data_[i]; }
    const T& operator[](size_t i) const { return data_[i]; }

private:
    static size_t in_units(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

    struct Free {
        size_t bytes = 0;  // in whole large pages, or fewer than one
        void operator()(T* data) const {
            if (bytes < LARGE_PAGE) {
                std::free(data);
            } else {
                free_large(data, bytes);
            }
        }
    };
    std::unique_ptr<T[], Free> data_;
    size_t size_ = 0;
};

}  // namespace mtkit
